"""What one engine's peers can do to it, and to each other, by being frozen, slow or known by two names."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from peers import Peer, Target, footprint

import onesided
from onesided.engine import Status


def failure_of(outcomes: list, call, *args, **kwargs) -> None:
    try:
        call(*args, **kwargs)
        outcomes.append(None)
    except onesided.EngineError as error:
        outcomes.append(error.status)


def status_of(call, *args, **kwargs) -> Status | None:
    outcomes: list = []
    failure_of(outcomes, call, *args, **kwargs)
    return outcomes[0]


@pytest.mark.parametrize("end", ["disconnect", "close"])
def test_nobody_waits_behind_who_waits_for_a_frozen_peer(end):
    with onesided.Engine() as engine, Peer("shm", 4096) as peer:
        engine.connect(peer.id)
        peer.freeze()
        # Until the queue is full: then senders wait for capacity.
        for _ in range(4):
            assert status_of(engine.send_notify, peer.id, "n", b"x" * (4 << 20), timeout_ms=20) == Status.TIMEOUT
        patient: list = []
        thread = threading.Thread(target=failure_of, args=(patient, engine.send_notify, peer.id, "n", b"1"))
        thread.start()
        # The patient one has no limit: behind it these would never end.
        assert status_of(engine.send_notify, peer.id, "n", b"2", timeout_ms=20) == Status.TIMEOUT
        assert thread.is_alive()
        if end == "disconnect":
            engine.disconnect(peer.id)
        else:
            engine.close()
        thread.join(30)
        assert not thread.is_alive()
        assert patient[0] in (Status.CANCELLED, Status.CLOSED)


def test_a_peer_that_was_suspended_finds_what_was_registered_meanwhile():
    with onesided.Engine() as owner, Peer("shm", 4096, connect=owner.id) as peer, Peer("shm", 4096) as other:
        peer.freeze()
        before = footprint()[0]
        # Each is a separate file; deregistered ones cost nothing, for any time that the peer is suspended.
        for _ in range(1500):
            memory = onesided.host_pool(4096, alignment=4096)
            owner.deregister_mem(owner.register_mem(memory.addr, memory.nbytes))
            memory.close()
        assert footprint()[0] < before + 100, "files of closed pools are kept for a suspended peer"
        pools = [onesided.host_pool(4096, alignment=4096) for _ in range(600)]
        for pool in pools:
            owner.register_mem(pool.addr, pool.nbytes)
        pools[-1].numpy()[:] = 42
        # Another peer does not notice, neither before nor after.
        owner.connect(other.id)
        peer.thaw()
        reply = peer.ask("read", owner.id, pools[-1].addr, 100)
        assert reply["data"] == [42] * 100
        assert reply["used"] == {"shm": 100}
        assert owner.stats()["connected_to_us"] == 1


def test_an_owner_with_more_files_than_a_peer_has_descriptors_for_at_once():
    with onesided.Engine() as owner, Peer("shm", 4096, prefix=["prlimit", "--nofile=300"], connect=owner.id) as peer:
        pools = [onesided.host_pool(4096, alignment=4096) for _ in range(400)]
        for pool in pools:
            owner.register_mem(pool.addr, pool.nbytes)
        pools[-1].numpy()[:] = 7
        reply = peer.ask("read", owner.id, pools[-1].addr, 100)
        assert reply["data"] == [7] * 100
        assert reply["used"] == {"shm": 100}


@pytest.mark.parametrize("transports", ["shm", "tcp"])
def test_an_engine_by_another_name_is_the_same_engine(transports):
    with (
        onesided.Engine("127.0.0.1:0", {"transports": transports, "auto_connect": "on"}) as engine,
        Peer(transports, 4096, fill=3) as peer,
    ):
        target = Target(engine, 4096)
        alias = peer.id.replace("127.0.0.1", "localhost")
        engine.connect(peer.id)
        engine.transfer_sync(alias, "READ", [(target.address, peer.address, 4096)], timeout_ms=10_000)
        assert (target.data == 3).all()
        assert status_of(engine.connect, alias) == Status.ALREADY_CONNECTED
        assert list(engine.stats()["peers"]).count(peer.id) == 1 and alias not in engine.stats()["peers"]
        engine.disconnect(alias)
        assert status_of(engine.disconnect, peer.id) == Status.NOT_CONNECTED
        assert status_of(engine.disconnect, alias) == Status.NOT_CONNECTED
        # Whoever asks by either name first connects, and the other name is good as well.
        outcomes: list = []
        buffers = [Target(engine, 64) for _ in range(8)]
        threads = [
            threading.Thread(
                target=failure_of,
                args=(outcomes, engine.transfer_sync, name, "READ", [(buffers[i].address, peer.address, 64)]),
                kwargs={"timeout_ms": 20_000},
            )
            for i, name in enumerate([peer.id, alias] * 4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [None] * 8
        assert all(np.all(buffer.data == 3) for buffer in buffers)
