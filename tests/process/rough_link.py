"""A cable of bad quality: packets between two tun devices come late, out of order, twice, or not at all.

Started by two_hosts.py as `python rough_link.py NEAR FAR SEED`; makes both devices in its namespace, says so, and carries
packets until its input ends. The last line it prints counts what it did to them. A device may be moved into another
namespace meanwhile.
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
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_LONGEST = 65536


def open_tun(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def carry(ends: tuple[int, int], seed: int) -> dict[str, int]:
    """Until standard input ends."""
    dice, order = random.Random(seed), itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    done = {"carried": 0, "lost": 0, "twice": 0}
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, to, packet = heapq.heappop(under_way)
            try:
                os.write(to, packet)
                done["carried"] += 1
            except OSError:  # the device is down, or its queue is full: one more that is lost
                done["lost"] += 1
        wait = under_way[0][0] - now if under_way else None
        ready, _, _ = select.select([*ends, sys.stdin], [], [], wait)
        if sys.stdin in ready:
            return done
        for source in ready:
            packet, to = os.read(source, _LONGEST), ends[1 - ends.index(source)]
            fate = dice.random()
            if fate < LOST:
                done["lost"] += 1
                continue
            copies = 2 if fate > 1 - TWICE else 1
            done["twice"] += copies - 1
            for _ in range(copies):
                heapq.heappush(under_way, (time.monotonic() + dice.uniform(*DELAY_S), next(order), to, packet))


if __name__ == "__main__":
    made = open_tun(sys.argv[1]), open_tun(sys.argv[2])
    print("ready", flush=True)
    print(json.dumps(carry(made, int(sys.argv[3]))), flush=True)
