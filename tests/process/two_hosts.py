"""Two "hosts" on one machine: this process in one network namespace, peers in another, a cable between them.

Started by test_two_hosts.py as `unshare -n python two_hosts.py SCENARIO` (as root, or `unshare -Urn` without): it may
change everything in its namespace, and all of it goes away with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers import Peer, Target

import onesided
from onesided.engine import Status, TransferStatus

CANNOT = 77  # exit status: this kernel lacks what the scenario needs; the last line says what
NEAR, FAR = "10.77.0.1", "10.77.0.2"
TEST_MS = 20_000
ROUGH_MS = 60_000


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr.strip()}")
        sys.exit(CANNOT)


class Cable:
    """The far namespace and a veth link to it. A context manager."""

    def lay(self) -> None:
        """Makes the devices `near`, here, and `far`, there."""
        run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(self.holder.pid))

    def __enter__(self) -> Cable:
        # The far host exists for as long as something lives in it.
        self.holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdin.write(b"\n")
        self.holder.stdin.flush()
        self.holder.stdout.readline()  # it runs, so it has its namespace
        self.there = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
        run("ip", "link", "set", "lo", "up")
        self.lay()
        run("ip", "addr", "add", f"{NEAR}/24", "dev", "near")
        run("ip", "link", "set", "near", "up")
        run(*self.there, "ip", "addr", "add", f"{FAR}/24", "dev", "far")
        run(*self.there, "ip", "link", "set", "far", "up")
        run(*self.there, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()

    def cut(self) -> None:
        run("ip", "link", "set", "near", "down")

    def restore(self) -> None:
        run("ip", "link", "set", "near", "up")

    def peer(self, nbytes: int, options: dict[str, str], **wanted: Any) -> Peer:
        return Peer("shm,cma,tcp", nbytes, prefix=self.there, options=options, local_engine=f"{FAR}:0", **wanted)


class RoughCable(Cable):
    """A link that harms packets (netem is not in every kernel). `harm`: see rough_link.py."""

    SEED = 7

    def __init__(self, harm: str) -> None:
        self.harm = harm

    def lay(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("rough_link.py")), "near", "far"]
        command += [str(self.SEED), self.harm]
        self.link = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.link.stdout.readline() != "ready\n":
            print("no tun device can be made (/dev/net/tun)")
            sys.exit(CANNOT)
        run("ip", "link", "set", "far", "netns", str(self.holder.pid))

    def __exit__(self, *what: object) -> None:
        self.link.stdin.close()
        self.done = json.loads(self.link.stdout.readline())
        self.link.wait()
        self.link.stdout.close()
        super().__exit__(*what)
        print(f"seed {self.SEED}: {self.done}")
        assert all(self.done[kind] > 0 for kind in HARMS[self.harm]), self.done


HARMS = {"loss": ("lost", "twice"), "resets": ("reset",)}  # what must have happened


def secret_file(text: str) -> str:
    path = Path(tempfile.mkdtemp()) / "secret"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text + "\n")
    return str(path)


def engine(options: dict[str, str]) -> onesided.Engine:
    return onesided.Engine(f"{NEAR}:0", {"transports": "shm,cma,tcp", **options})


def status_of(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Status, str]:
    try:
        call(*args, **kwargs)
    except onesided.EngineError as error:
        return error.status, str(error)
    raise AssertionError("succeeded")


def transfers(cable: Cable) -> None:
    """Everything a peer on another host may do, over tcp and nothing else."""
    options = {"auth_secret_file": secret_file("sixteen bytes and some")}
    nbytes = 32 << 20
    with engine(options) as near, cable.peer(nbytes, options, fill=3) as peer:
        target = Target(near, nbytes)
        near.connect(peer.id, timeout_ms=TEST_MS)
        near.transfer_sync(peer.id, "READ", [(target.address, peer.address, nbytes)], timeout_ms=TEST_MS)
        assert (target.data == 3).all() and target.intact()
        target.data[:] = np.arange(nbytes, dtype=np.uint8)
        near.transfer_sync(peer.id, "WRITE", [(target.address, peer.address, nbytes)], timeout_ms=TEST_MS)
        assert peer.ask("peek", 300, 5)["data"] == [44, 45, 46, 47, 48]
        step = 1000
        items = [(target.address + i * step, peer.address + (i + 1) * step, step) for i in range(1000)]
        near.transfer_sync(peer.id, "READ", items, timeout_ms=TEST_MS)
        assert (target.data[: 1000 * step] == np.arange(step, 1001 * step).astype(np.uint8)).all()
        used = near.stats()["peers"][peer.id]
        assert used["bytes"]["tcp"] > 2 * nbytes and set(used["bytes"]) == {"tcp"}, used
        assert set(used["not_used"]) == {"shm", "cma"}, used
        near.send_notify(peer.id, "big", bytes(1 << 20), timeout_ms=TEST_MS)
        assert [name for name, _ in peer.ask("notifies")["notifies"]] == ["big"]
        # Deregistered: refused at once. Registered again: usable at once.
        peer.ask("deregister")
        one = [(target.address, peer.address, 1)]
        assert status_of(near.transfer_sync, peer.id, "READ", one)[0] in (Status.STALE, Status.PARAM_INVALID)
        peer.ask("register")
        near.transfer_sync(peer.id, "READ", one, timeout_ms=TEST_MS)
        peer.kill()
        # Noticed at once by the closed sockets, before or while the transfer runs.
        assert status_of(near.transfer_sync, peer.id, "READ", one, timeout_ms=TEST_MS)[0] == Status.PEER_LOST


def strangers(cable: Cable) -> None:
    """Without the peer's secret no engine connects, and the errors on both sides say what to do."""
    right = {"auth_secret_file": secret_file("sixteen bytes and some")}
    wrong = {"auth_secret_file": secret_file("sixteen bytes, but others")}
    for ours, theirs in ((right, wrong), (right, {}), ({}, right), ({}, {})):
        with engine(ours) as near, cable.peer(4096, theirs) as peer:
            status, text = status_of(near.connect, peer.id, timeout_ms=TEST_MS)
            assert status == Status.AUTH_FAILED and "auth_secret_file" in text, text


def silence(cable: Cable) -> None:
    """A host that falls silent is lost after four heartbeats, and can be connected again when it is back."""
    options = {"auth_secret_file": secret_file("sixteen bytes and some"), "heartbeat_ms": "100"}
    with engine(options) as near, cable.peer(4096, options, fill=5) as peer:
        target = Target(near, 4096)
        whole = [(target.address, peer.address, 4096)]
        near.connect(peer.id, timeout_ms=TEST_MS)
        cable.cut()
        request = near.transfer_async(peer.id, "READ", whole, timeout_ms=TEST_MS)
        assert request.wait(timeout_ms=TEST_MS) == TransferStatus.FAILED
        assert request.error.status == Status.PEER_LOST, request.error
        # An unreachable address: the timeout passes without an answer.
        status, _ = status_of(near.connect, peer.id, timeout_ms=200)
        assert status in (Status.TIMEOUT, Status.NOT_CONNECTED), status
        cable.restore()
        near.connect(peer.id, timeout_ms=TEST_MS)
        near.transfer_sync(peer.id, "READ", whole, timeout_ms=TEST_MS)
        assert (target.data == 5).all()


def interruption(cable: Cable) -> None:
    """A break shorter than the heartbeats allow costs time, not the connection."""
    options = {"auth_secret_file": secret_file("sixteen bytes and some"), "heartbeat_ms": "10000"}
    with engine(options) as near, cable.peer(1 << 20, options, fill=6) as peer:
        target = Target(near, 1 << 20)
        whole = [(target.address, peer.address, 1 << 20)]
        near.connect(peer.id, timeout_ms=TEST_MS)
        cable.cut()
        for op in ("READ", "WRITE"):
            assert status_of(near.transfer_sync, peer.id, op, whole, timeout_ms=100)[0] == Status.TIMEOUT
        cable.restore()
        near.transfer_sync(peer.id, "READ", whole, timeout_ms=TEST_MS)
        # The WRITE that was given up did not get there late.
        assert (target.data == 6).all()


def loss(cable: Cable) -> None:
    """Late, lost, repeated and disordered packets change the speed only."""
    options = {"auth_secret_file": secret_file("sixteen bytes and some"), "tcp_streams": "4"}
    nbytes = 3 << 20
    with engine(options) as near, cable.peer(nbytes, options, fill=7) as peer:
        target = Target(near, nbytes)
        near.connect(peer.id, timeout_ms=ROUGH_MS)
        near.transfer_sync(peer.id, "READ", [(target.address, peer.address, nbytes)], timeout_ms=ROUGH_MS)
        assert (target.data == 7).all()
        sent = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)
        target.data[:] = sent
        near.transfer_sync(peer.id, "WRITE", [(target.address, peer.address, nbytes)], timeout_ms=ROUGH_MS)
        # Back in pieces, in another order, several transfers at once.
        target.data[:] = 0
        step = nbytes // 64
        places = np.random.default_rng(2).permutation(64) * step
        requests = [
            near.transfer_async(peer.id, "READ", [(target.address + at, peer.address + at, step)], timeout_ms=ROUGH_MS)
            for at in places.tolist()
        ]
        for request in requests:
            assert request.wait() == TransferStatus.COMPLETED, request.error
        assert (target.data == sent).all() and target.intact()
        for count in range(20):
            near.send_notify(peer.id, str(count), b"n" * 1000, timeout_ms=ROUGH_MS)
        assert [name for name, _ in peer.ask("notifies")["notifies"]] == [str(count) for count in range(20)]


def resets(cable: Cable) -> None:
    """A data stream that is reset in the middle is replaced, and what it carried is repeated."""
    options = {"auth_secret_file": secret_file("sixteen bytes and some")}
    nbytes = 8 << 20
    with engine(options) as near, cable.peer(nbytes, options, fill=9) as peer:
        target = Target(near, nbytes)
        near.connect(peer.id, timeout_ms=ROUGH_MS)
        for op in ("READ", "WRITE", "READ"):
            near.transfer_sync(peer.id, op, [(target.address, peer.address, nbytes)], timeout_ms=ROUGH_MS)
        assert (target.data == 9).all() and target.intact()


SCENARIOS = {scenario.__name__: scenario for scenario in (transfers, strangers, silence, interruption, loss, resets)}

if __name__ == "__main__":
    with RoughCable(sys.argv[1]) if sys.argv[1] in HARMS else Cable() as made:
        SCENARIOS[sys.argv[1]](made)
