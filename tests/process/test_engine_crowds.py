"""Many engines and many connections at once: ports, peers that never answer, peers that die while they are asked."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers import Peer, Target, until

import onesided
from onesided.engine import Status, TransferStatus

CROWD = 32


def outcome_of(call: Callable[..., object], *args: object, **kwargs: object) -> Status:
    try:
        call(*args, **kwargs)
    except onesided.EngineError as error:
        return error.status
    return Status.SUCCESS


# Field case B17.
def test_engines_that_ask_for_any_port_at_once_get_one_each():
    program = Path(__file__).with_name("engine_crowd.py")
    with subprocess.Popen(
        [sys.executable, str(program), str(CROWD), "tcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as crowd:
        members = [json.loads(crowd.stdout.readline()) for _ in range(CROWD)]
        assert len({member["id"] for member in members}) == CROWD
        with onesided.Engine("127.0.0.1:0", {"transports": "tcp"}) as engine:
            target = Target(engine, 4096)
            for member in members:
                engine.connect(member["id"], timeout_ms=20_000)
                engine.transfer_sync(
                    member["id"], "READ", [(target.address, member["address"], 4096)], timeout_ms=20_000
                )
                assert (target.data == member["number"]).all()
        crowd.stdin.close()
        assert crowd.wait() == 0


# Field case B17.
def test_a_taken_port_is_refused_and_the_next_port_is_nobodys_business():
    with onesided.Engine("127.0.0.1:0") as first:
        assert outcome_of(onesided.Engine, first.id) == Status.ADDR_IN_USE
        with onesided.Engine("127.0.0.1:0") as second:
            host, port = first.id.rsplit(":", 1)
            # The port next to the first one's belongs to another program.
            with contextlib.suppress(OSError), socket.create_server((host, int(port) + 1)):
                second.connect(first.id, timeout_ms=20_000)
    # A foreign listener on an explicit port: refused, and it keeps what it has.
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        taken = f"127.0.0.1:{foreign.getsockname()[1]}"
        assert outcome_of(onesided.Engine, taken) == Status.ADDR_IN_USE
        with socket.create_connection(foreign.getsockname()), foreign.accept()[0]:
            pass


@contextlib.contextmanager
def listener_that_accepts_and_is_silent() -> Iterator[str]:
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(listener.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert accepted
    for connection in accepted:
        connection.close()


@contextlib.contextmanager
def listener_with_a_full_backlog() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as fillers:

        def refuses() -> bool:
            filler = fillers.enter_context(socket.socket())
            filler.settimeout(0.1)
            return filler.connect_ex(listener.getsockname()) != 0

        assert until(refuses)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


# Field case B21.
@pytest.mark.parametrize("make_hole", [listener_that_accepts_and_is_silent, listener_with_a_full_backlog])
def test_black_holed_peers_hurt_nobody(make_hole):
    with make_hole() as hole, onesided.Engine() as engine, Peer("shm", 1 << 20, fill=4) as peer:
        target = Target(engine, 1 << 20)
        engine.connect(peer.id)
        outcomes = []
        threads = [
            threading.Thread(target=lambda: outcomes.append(outcome_of(engine.connect, hole, timeout_ms=500)))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        moved = 0
        while any(thread.is_alive() for thread in threads):
            engine.transfer_sync(peer.id, "READ", [(target.address, peer.address, 1 << 20)], timeout_ms=10_000)
            moved += 1
        for thread in threads:
            thread.join()
        assert outcomes == [Status.TIMEOUT] * 10
        assert moved > 10  # in half a second; hundreds on a machine that has nothing else to do
        engine.connect_async(hole, timeout_ms=300)
        assert engine.get_async_connect_status(hole) == TransferStatus.WAITING
        assert until(lambda: engine.get_async_connect_status(hole) == TransferStatus.TIMEOUT)
        assert engine.get_async_connect_error(hole).status == Status.TIMEOUT
        assert (target.data == 4).all()


# Field case B06: killed while it is asked for something, not while it is read.
@pytest.mark.parametrize("transports", ["shm", "tcp"])
@pytest.mark.parametrize("asked", ["connect", "notify"])
def test_peer_killed_while_it_is_asked(transports, asked):
    with onesided.Engine("127.0.0.1:0", {"transports": transports}) as engine, Peer(transports, 4096) as peer:
        if asked == "notify":
            engine.connect(peer.id, timeout_ms=20_000)
        peer.freeze()
        outcomes = []
        begun = threading.Event()

        def ask() -> None:
            begun.set()
            if asked == "notify":
                outcomes.append(outcome_of(engine.send_notify, peer.id, "n", b"", timeout_ms=60_000))
            else:
                outcomes.append(outcome_of(engine.connect, peer.id, timeout_ms=60_000))

        thread = threading.Thread(target=ask)
        thread.start()
        begun.wait()
        assert not outcomes
        peer.kill()
        thread.join(30)
        # Long before its own deadline.
        assert len(outcomes) == 1
        assert outcomes[0] in (Status.PEER_LOST, Status.NOT_CONNECTED)


# Security rule 8: a local process of another user is treated like a remote peer.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another user")
def test_a_process_of_another_user_is_refused():
    nobody = 65534
    with onesided.Engine("127.0.0.1:0") as engine, Peer("shm,cma,tcp", 4096, uid=nobody) as peer:
        assert outcome_of(engine.connect, peer.id, timeout_ms=20_000) == Status.AUTH_FAILED
        assert engine.stats()["connected_to_us"] == 0
