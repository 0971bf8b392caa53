"""The engine inside a Python interpreter: who waits holds no lock, sees Ctrl-C, and may be cut off by a fork or an exit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest
from peers import Peer, Target, until

import onesided
from onesided.engine import Status, TransferStatus

MIB = 1 << 20


@contextlib.contextmanager
def transfer_that_waits():
    """An engine, a frozen peer, and what to READ from it: nothing comes before the peer is thawed."""
    with onesided.Engine("127.0.0.1:0", {"transports": "tcp"}) as engine, Peer("tcp", 64 * MIB, fill=5) as peer:
        target = Target(engine, 64 * MIB)
        engine.connect(peer.id)
        # Both ends have their data streams: what follows needs nothing but the peer's program.
        engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 64 * MIB)], timeout_ms=60_000)
        peer.freeze()
        yield engine, peer, target, [(target.address, peer.address, 64 * MIB)]
        peer.thaw()


def test_who_waits_lets_other_threads_run():
    with transfer_that_waits() as (engine, peer, target, descs):
        calls = [
            lambda: engine.transfer_sync(peer.id, "READ", descs, timeout_ms=60_000),
            lambda: engine.transfer_async(peer.id, "READ", descs).wait(60_000),
        ]
        for call in calls:
            # With the interpreter held, this thread would never come to thaw the peer.
            rescuer = threading.Timer(0.05, peer.thaw)
            rescuer.start()
            call()
            rescuer.join()
            assert (target.data == 5).all()
            peer.freeze()


def test_a_request_ends_as_its_caller_wants():
    with transfer_that_waits() as (engine, peer, target, descs):
        request = engine.transfer_async(peer.id, "READ", descs)
        with pytest.raises(TimeoutError, match="not finished after 1 ms"):
            request.wait(timeout_ms=1)
        assert request.status() == TransferStatus.WAITING
        request.cancel()
        assert request.status() == request.wait() == TransferStatus.FAILED
        assert request.error.status == Status.CANCELLED
        late = engine.transfer_async(peer.id, "READ", descs, timeout_ms=1)
        assert late.wait() == TransferStatus.TIMEOUT and late.error.status == Status.TIMEOUT
        # No byte can move any more: data that the peer sends now are not applied.
        target.data[:] = 7
        peer.thaw()
        assert until(lambda: readable_again(engine, peer))
        assert (target.data == 7).all()


def readable_again(engine: onesided.Engine, peer: Peer) -> bool:
    probe = Target(engine, 4096)
    try:
        engine.transfer_sync(peer.id, "READ", [(probe.address, peer.address, 4096)], timeout_ms=20_000)
    except onesided.EngineError:
        return False
    finally:
        engine.deregister_mem(probe.handle)
    return True


def interrupt_soon() -> threading.Timer:
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("limit", [None, 600_000])
def test_ctrl_c_ends_a_wait(limit):
    with transfer_that_waits() as (engine, peer, _, descs):
        silent = Peer("tcp", 4096)
        silent.freeze()
        calls = [
            lambda: engine.transfer_sync(peer.id, "READ", descs, timeout_ms=limit),
            lambda: engine.transfer_async(peer.id, "READ", descs).wait(limit),
            lambda: engine.connect(silent.id, timeout_ms=limit),
        ]
        for call in calls:
            timer = interrupt_soon()
            with pytest.raises(KeyboardInterrupt):
                call()
            timer.join()
        # The interrupted transfer_sync was cancelled; what it wrote to is free again.
        assert until(lambda: engine.stats()["outstanding"] <= 1)
        silent.kill()


def test_a_forked_child_gets_closed_from_the_parents_request():
    with transfer_that_waits() as (engine, peer, target, descs):
        request = engine.transfer_async(peer.id, "READ", descs)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            request.cancel()
            right = request.wait() == request.status() == engine.get_transfer_status(request) == TransferStatus.FAILED
            right = right and request.error.status == Status.CLOSED
            right = right and [item.status for item in request.items] == [Status.CLOSED]
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        peer.thaw()
        assert request.wait(60_000) == TransferStatus.COMPLETED
        assert (target.data == 5).all()
        child = os.fork()
        if child == 0:
            right = request.wait() == TransferStatus.COMPLETED and request.error is None
            os._exit(0 if right and request.items[0].bytes_done == 64 * MIB else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


DAEMONS = """
import threading
import onesided

engine = onesided.Engine("127.0.0.1:0")
pool = onesided.host_pool(1 << 20)
engine.register_mem(pool.addr, pool.nbytes)
begun = threading.Barrier(4)

def move_for_ever():
    begun.wait()
    while True:
        try:
            engine.transfer_async(engine.id, "READ", [(pool.addr, pool.addr + (1 << 19), 1 << 19)]).wait()
        except onesided.EngineError:
            pass

for _ in range(3):
    threading.Thread(target=move_for_ever, daemon=True).start()
begun.wait()
"""


def test_daemon_threads_in_a_call_do_not_abort_the_exit():
    # A race with the interpreter's end, drawn several times.
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
