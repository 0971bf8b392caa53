"""What a program does a thousand times: connect, move, fail, disconnect. Nothing may be left behind."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from peers import Peer, Target, footprint, until

import onesided
from onesided.engine import Status, TransferStatus

TRANSPORTS = ["shm", "cma", "tcp"]
MIB = 1 << 20
PATIENT_MS = 20_000


def settles(before: tuple[int, int, int]) -> bool:
    """File descriptors, threads and mappings come back to where they were."""
    slack = (2, 2, 10)
    return until(lambda: all(now - then <= more for now, then, more in zip(footprint(), before, slack, strict=True)))


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sockets_in_time_wait(port: int) -> int:
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return sum(row[3] == "06" and f"{port:04X}" in (row[1].split(":")[1], row[2].split(":")[1]) for row in rows)


# Field case B22.
@pytest.mark.parametrize("transports", TRANSPORTS)
def test_a_thousand_connects_leave_nothing_behind(transports):
    with (
        onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine,
        Peer(transports, 1 << 16, fill=8) as peer,
    ):
        target = Target(engine, 1 << 16)

        def cycle() -> None:
            engine.connect(peer.id, timeout_ms=PATIENT_MS)
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 1 << 16)], timeout_ms=PATIENT_MS)
            engine.disconnect(peer.id)

        for _ in range(5):
            cycle()
        before = footprint()
        for _ in range(1000):
            cycle()
        for _ in range(100):
            with onesided.Engine("127.0.0.1:0", {"transports": transports}) as short_lived:
                short_lived.connect(peer.id, timeout_ms=PATIENT_MS)
        del short_lived  # what is left of a closed engine goes with its object
        assert settles(before), (before, footprint())
        assert until(lambda: peer.ask("inbound_peers")["inbound_peers"] == 0)


# Field case B22.
def test_engines_closed_in_the_middle_of_a_write_leave_nothing_behind():
    nbytes = 32 * MIB
    with Peer("tcp", nbytes, fill=8) as peer:

        def cycle() -> None:
            with onesided.Engine("127.0.0.1:0", {"transports": "tcp"}) as engine:
                target = Target(engine, nbytes)
                engine.connect(peer.id, timeout_ms=PATIENT_MS)
                engine.transfer_async(peer.id, "WRITE", [(target.address, peer.address, nbytes)])

        cycle()
        before = footprint()
        for _ in range(30):
            cycle()
        assert settles(before), (before, footprint())


# Field case B22.
def test_transfers_use_the_connections_there_are():
    lanes = 2
    options = {"transports": "tcp", "tcp_streams": str(lanes)}
    with (
        onesided.Engine("127.0.0.1:0", options) as engine,
        Peer("tcp", 1 << 16, fill=8, options={"tcp_streams": str(lanes)}) as peer,
    ):
        threads, each = 10, 2000
        targets = [Target(engine, 4096) for _ in range(threads)]
        before = footprint()
        engine.connect(peer.id, timeout_ms=PATIENT_MS)

        def move(target: Target) -> None:
            for _ in range(each):
                engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)], timeout_ms=PATIENT_MS)

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(move, target) for target in targets]:
                done.result()
        assert footprint()[0] - before[0] <= lanes + 8
        assert sockets_in_time_wait(int(peer.id.rsplit(":", 1)[1])) < 100
        assert all((target.data == 8).all() for target in targets)


# Field case B13.
@pytest.mark.parametrize("transports", TRANSPORTS)
def test_failed_transfers_are_not_remembered(transports):
    with (
        onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine,
        Peer(transports, 1 << 16, fill=8) as peer,
    ):
        target = Target(engine, 1 << 16)
        engine.connect(peer.id, timeout_ms=PATIENT_MS)
        regions = engine.import_desc(bytes.fromhex(peer.ask("describe")["blob"]))
        gone = regions.pairs([(target.address, 0, 0, 64)])
        peer.ask("deregister")
        peer.ask("register")
        good = [(target.address, peer.address, 64)]
        beyond = [(target.address, peer.address + (1 << 16) - 63, 64)]

        def ten() -> None:
            with pytest.raises(onesided.EngineError) as refused:
                engine.transfer_async(peer.id, "READ", beyond)
            assert refused.value.status == Status.PARAM_INVALID
            failed = engine.transfer_async(peer.id, "READ", gone)
            assert failed.wait() == TransferStatus.FAILED and failed.error.status == Status.STALE
            # One in eight is waited for, the others are simply dropped.
            requests = [engine.transfer_async(peer.id, "READ", good) for _ in range(8)]
            assert requests[-1].wait(PATIENT_MS) == TransferStatus.COMPLETED

        for _ in range(1000):
            ten()
        before = resident_bytes()
        for _ in range(9000):
            ten()
        assert until(lambda: engine.stats()["outstanding"] == 0)
        assert engine.stats()["peers"][peer.id]["transfers"] == 0
        assert resident_bytes() - before < 10 * MIB


# Field case B22: ten seconds in which nothing is said.
def test_the_first_transfer_after_a_long_silence_succeeds():
    with contextlib.ExitStack() as opened:
        idle = []
        for transports in TRANSPORTS:
            engine = opened.enter_context(onesided.Engine("127.0.0.1:0", {"transports": transports}))
            peer = opened.enter_context(Peer(transports, 4096, fill=8))
            target = Target(engine, 4096)
            engine.connect(peer.id, timeout_ms=PATIENT_MS)
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)], timeout_ms=PATIENT_MS)
            target.data[:] = 0
            idle.append((engine, peer, target))
        threading.Event().wait(10)
        for engine, peer, target in idle:
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)], timeout_ms=PATIENT_MS)
            assert (target.data == 8).all()
