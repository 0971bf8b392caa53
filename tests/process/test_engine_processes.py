"""The engine against peers that are killed, frozen, restarted, or never answer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import numpy as np
import pytest
from peers import Peer, Target, until

import onesided
from onesided.engine import Status, TransferStatus

GIB = 1 << 30
TRANSPORTS = ["shm", "cma", "tcp"]


def status_of(call, *args, **kwargs) -> Status:
    with pytest.raises(onesided.EngineError) as caught:
        call(*args, **kwargs)
    return caught.value.status


def until_moved(request: onesided.engine.Request, nbytes: int) -> bool:
    return until(lambda: request.bytes_done >= nbytes or request.status() != TransferStatus.WAITING)


def until_refused(engine: onesided.Engine, peer: Peer, target: Target) -> Status | None:
    """Why a peer that was killed cannot be read any more, as soon as that has been noticed."""
    refused = []

    def ask() -> bool:
        try:
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 1)])
        except onesided.EngineError as error:
            refused.append(error.status)
        return bool(refused)

    return refused[0] if until(ask) else None


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_peer_killed_in_a_1_gib_read(transports):
    with (
        onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine,
        Peer(transports, 4096, fill=3) as bystander,
    ):
        target, small = Target(engine, GIB), Target(engine, 4096)
        engine.connect(bystander.id)
        for percent in (10, 50, 90):
            with Peer(transports, GIB) as peer:
                engine.connect(peer.id)
                request = engine.transfer_async(peer.id, "READ", [(target.address, peer.address, GIB)])
                assert until_moved(request, GIB * percent // 100)
                peer.kill()
                # 1 s is promised; a loaded machine gets more before the test gives up.
                status = request.wait(timeout_ms=10_000)
                assert status in (TransferStatus.FAILED, TransferStatus.COMPLETED)
                if status == TransferStatus.FAILED:
                    assert request.error.status == Status.PEER_LOST, request.error
                    assert request.bytes_done < GIB
                assert until_refused(engine, peer, target) == Status.PEER_LOST
                engine.transfer_sync(bystander.id, "READ", [(small.address, bystander.address, 4096)])
        assert (small.data == 3).all()
        assert target.intact() and small.intact()


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_idle_peer_killed_is_noticed(transports):
    with onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine, Peer(transports, 4096) as peer:
        target = Target(engine, 4096)
        engine.connect(peer.id)
        peer.kill()
        assert until_refused(engine, peer, target) == Status.PEER_LOST
        assert status_of(engine.send_notify, peer.id, "n", b"") == Status.PEER_LOST


@pytest.mark.parametrize("transports", ["shm", "cma"])
def test_frozen_peer_is_read_all_the_same(transports):
    with (
        onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine,
        Peer(transports, 1 << 20, fill=5) as peer,
    ):
        target = Target(engine, 1 << 20)
        engine.connect(peer.id)
        peer.freeze()
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 1 << 20)])
        assert (target.data == 5).all()
        assert status_of(engine.send_notify, peer.id, "n", b"", timeout_ms=50) == Status.TIMEOUT
        peer.thaw()
        engine.send_notify(peer.id, "n", b"again", timeout_ms=10_000)


def test_frozen_peer_on_tcp_is_a_timeout():
    nbytes = 64 << 20
    with (
        onesided.Engine("127.0.0.1:0", {"transports": "tcp"}) as engine,
        Peer("tcp", nbytes, fill=6) as peer,
        Peer("tcp", 4096, fill=7) as other,
    ):
        target, small = Target(engine, nbytes), Target(engine, 4096)
        engine.connect(peer.id)
        engine.connect(other.id)
        peer.freeze()
        requests = [
            engine.transfer_async(peer.id, "READ", [(target.address, peer.address, nbytes)], timeout_ms=500)
            for _ in range(21)
        ]
        engine.transfer_sync(other.id, "READ", [(small.address, other.address, 4096)], timeout_ms=10_000)
        for request in requests:
            assert request.wait(timeout_ms=10_000) == TransferStatus.TIMEOUT
            assert request.error.status == Status.TIMEOUT
        target.data[:] = 9
        peer.thaw()
        try:
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)], timeout_ms=10_000)
        except onesided.EngineError:
            # A connection may be torn down to call work back; then it can be made again.
            engine.connect(peer.id, timeout_ms=10_000)
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)], timeout_ms=10_000)
        assert (target.data[:4096] == 6).all() and (target.data[4096:] == 9).all()
        assert target.intact()


# Field case B07: what was under way when the peer froze.
def test_peer_frozen_in_the_middle_of_a_read():
    with onesided.Engine("127.0.0.1:0", {"transports": "tcp"}) as engine, Peer("tcp", GIB) as peer:
        target = Target(engine, GIB)
        engine.connect(peer.id, timeout_ms=10_000)

        def caught() -> bool:
            request = engine.transfer_async(peer.id, "READ", [(target.address, peer.address, GIB)], timeout_ms=2000)
            assert until_moved(request, GIB // 10)
            peer.freeze()
            status = request.wait(timeout_ms=20_000)
            peer.thaw()
            assert status in (TransferStatus.TIMEOUT, TransferStatus.COMPLETED)
            return status == TransferStatus.TIMEOUT

        # It may be through before the signal arrives.
        assert any(caught() for _ in range(10))
        assert target.intact()


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_restart_on_the_same_address_with_other_data(transports):
    with onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine:
        target = Target(engine, 1 << 20)
        with Peer(transports, 1 << 20, fill=1) as peer:
            engine.connect(peer.id)
            regs = engine.import_desc(bytes.fromhex(peer.ask("describe")["blob"]))
            bound = regs.pairs([(target.address, 0, 0, 1 << 20)])
            engine.transfer_sync(peer.id, "READ", bound)
            assert (target.data == 1).all()
            peer.kill()
            with Peer(transports, 1 << 20, fill=2, local_engine=peer.id) as again:
                assert again.id == peer.id
                # What was connected is gone; nothing is read from the newcomer by accident.
                assert until_refused(engine, peer, target) == Status.PEER_LOST
                assert (target.data == 1).all()
                engine.connect(again.id, timeout_ms=10_000)
                assert status_of(engine.transfer_sync, again.id, "READ", bound) == Status.STALE
                assert (target.data == 1).all()
                engine.transfer_sync(again.id, "READ", [(target.address, again.address, 1 << 20)])
                assert (target.data == 2).all()


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_writer_killed_does_not_block_the_owner(transports):
    with onesided.Engine("127.0.0.1:0", {"transports": transports}) as owner:
        memory = onesided.host_pool(1 << 20)
        handle = owner.register_mem(memory.addr, memory.nbytes)
        with Peer(transports, 1 << 20, connect=owner.id) as peer:
            assert owner.stats()["connected_to_us"] == 1
            peer.kill()
            owner.deregister_mem(handle, timeout_ms=10_000)
            assert until(lambda: owner.stats()["connected_to_us"] == 0)


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_connected_and_idle_costs_nothing_and_works_afterwards(transports):
    def switches() -> int:
        total = 0
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/status") as status:
                facts = dict(line.split(":", 1) for line in status)
                # Only our threads: other libraries in this process have theirs.
                if facts["Name"].strip().startswith("onesided"):
                    total += int(facts["voluntary_ctxt_switches"])
        return total

    with onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine, Peer(transports, 4096, fill=8) as peer:
        target = Target(engine, 4096)
        engine.connect(peer.id)
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)])
        before = switches()
        threading.Event().wait(2)
        # One heartbeat of 2 s, and the tail of what ran before.
        assert switches() - before <= 8
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)])
        assert (target.data == 8).all()


def test_forked_child_is_told_so_at_once():
    with onesided.Engine() as engine, Peer("shm", 4096, fill=1) as peer:
        target = Target(engine, 4096)
        engine.connect(peer.id)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            calls = [
                lambda: engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 16)]),
                lambda: engine.transfer_async(peer.id, "READ", [(target.address, peer.address, 16)]),
                lambda: engine.register_mem(target.address, 16),
                lambda: engine.deregister_mem(target.handle),
                lambda: engine.connect("127.0.0.1:1"),
                lambda: engine.disconnect(peer.id),
                lambda: engine.connect_async(peer.id),
                lambda: engine.send_notify(peer.id, "n", b""),
                engine.get_notifies,
                engine.stats,
            ]
            wrong = 0
            for call in calls:
                try:
                    call()
                    wrong += 1
                except onesided.EngineError as error:
                    wrong += error.status != Status.CLOSED
            engine.close()
            os._exit(wrong)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # The parent's sessions did not notice.
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)])
        assert (target.data == 1).all()


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_ipv6(transports):
    with (
        onesided.Engine("[::1]:0", {"transports": transports}) as engine,
        Peer(transports, 4096, fill=2, local_engine="[::1]:0") as peer,
    ):
        assert peer.id.startswith("[::1]:") and engine.id.startswith("[::1]:")
        target = Target(engine, 4096)
        engine.connect(peer.id)
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)])
        assert (target.data == 2).all()


@pytest.mark.parametrize("transports", ["cma", "tcp"])
def test_regions_beyond_4_gib(transports):
    nbytes = 5 * GIB
    with onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine, Peer(transports, nbytes) as peer:
        target = Target(engine, 1 << 16)
        engine.connect(peer.id)
        for offset in (0, (1 << 32) - 100, (1 << 32) + 1, nbytes - 4096):
            peer.ask("poke", offset, 77, 200)
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address + offset, 200)])
            assert (target.data[:200] == 77).all()
        assert (
            status_of(engine.transfer_sync, peer.id, "READ", [(target.address, peer.address + nbytes - 100, 101)])
            == Status.PARAM_INVALID
        )


def test_killed_owners_leave_no_shared_memory():
    before = set(os.listdir("/dev/shm"))
    with onesided.Engine() as engine:
        target = Target(engine, 4096)
        for _ in range(5):
            with Peer("shm", 1 << 20, fill=1) as peer:
                engine.connect(peer.id)
                engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 4096)])
                peer.kill()
    assert set(os.listdir("/dev/shm")) <= before


def test_memory_registered_while_the_owner_is_frozen_cannot_be_but_what_it_had_can():
    """A frozen owner's exported memory was passed to its peers when it registered it, not when they ask."""
    with onesided.Engine("127.0.0.1:0", {"transports": "shm"}) as engine, Peer("shm", 1 << 20, fill=1) as peer:
        target = Target(engine, 1 << 20)
        engine.connect(peer.id)
        peer.ask("deregister")
        assert (
            status_of(engine.transfer_sync, peer.id, "READ", [(target.address, peer.address, 16)])
            == Status.PARAM_INVALID
        )
        peer.ask("register")
        peer.freeze()
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 1 << 20)])
        assert np.count_nonzero(target.data == 1) == 1 << 20
        peer.thaw()
