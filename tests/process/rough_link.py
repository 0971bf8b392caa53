"""A cable of bad quality: packets between two tun devices come late, out of order, twice, not at all, or as resets.

Started by two_hosts.py as `python rough_link.py NEAR FAR SEED HARM`; makes both devices in its namespace, says so, and
carries packets until its input ends. The last line it prints counts what it did to them. A device may be moved into
another namespace meanwhile. HARM "loss": random delay, loss and repetition. HARM "resets": some full segments, which only data
streams have, arrive as a reset of their connection instead.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import json
import os
import random
import select
import struct
import sys
import time

DELAY_S = (0.001, 0.003)  # one way; packets overtake each other within it
LOST, TWICE = 0.01, 0.01
RESETS, EVERY = 2, 500  # so many, each after so many full segments; a request is given up after three lost streams
_FULL = 1200  # bytes
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_LONGEST = 65536


def open_tun(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def reset_of(packet: bytes) -> bytes:
    """The segment as a RST of its connection, from the same sender at the same place of the stream."""
    ip, tcp = bytearray(packet[:20]), bytearray(packet[20:40])
    ip[0], ip[2:4], ip[10:12] = 0x45, struct.pack("!H", 40), b"\0\0"
    ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
    tcp[12], tcp[13], tcp[16:18] = 0x50, 0x04, b"\0\0"
    pseudo = bytes(ip[12:20]) + struct.pack("!BBH", 0, 6, 20)
    tcp[16:18] = struct.pack("!H", checksum(pseudo + bytes(tcp)))
    return bytes(ip + tcp)


class Harm:
    """What becomes of each packet: the packets that arrive in its place, each with its delay."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.dice, self.full = kind, random.Random(seed), 0
        self.done = {"carried": 0, "lost": 0, "twice": 0, "reset": 0}

    def __call__(self, packet: bytes) -> list[tuple[float, bytes]]:
        if self.kind == "resets":
            self.full += len(packet) > _FULL
            if self.done["reset"] < RESETS and self.full >= EVERY and len(packet) > _FULL:
                self.done["reset"] += 1
                self.full = 0
                return [(DELAY_S[0], reset_of(packet))]
            return [(DELAY_S[0], packet)]
        fate = self.dice.random()
        if fate < LOST:
            self.done["lost"] += 1
            return []
        copies = 2 if fate > 1 - TWICE else 1
        self.done["twice"] += copies - 1
        return [(self.dice.uniform(*DELAY_S), packet)] * copies


def carry(ends: tuple[int, int], harm: Harm) -> None:
    """Until standard input ends."""
    order = itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(under_way)
            try:
                os.write(to, packet)
                harm.done["carried"] += 1
            except OSError:  # the device is down, or its queue is full: one more that is lost
                harm.done["lost"] += 1
        wait = under_way[0][0] - now if under_way else None
        ready, _, _ = select.select([*ends, sys.stdin], [], [], wait)
        if sys.stdin in ready:
            return
        for source in ready:
            to = ends[1 - ends.index(source)]
            for delay, packet in harm(os.read(source, _LONGEST)):
                heapq.heappush(under_way, (time.monotonic() + delay, next(order), to, packet))


if __name__ == "__main__":
    made = open_tun(sys.argv[1]), open_tun(sys.argv[2])
    print("ready", flush=True)
    harm = Harm(sys.argv[4], int(sys.argv[3]))
    carry(made, harm)
    print(json.dumps(harm.done), flush=True)
