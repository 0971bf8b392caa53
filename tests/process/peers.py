"""Starting, asking and killing peer processes, and looking at what this process has open."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import onesided

PROGRAM = Path(__file__).with_name("engine_peer.py")


class Peer:
    """One engine_peer.py. A context manager; killed at the end, whatever happened."""

    def __init__(self, transports: str, nbytes: int, prefix: Sequence[str] = (), **wanted: Any) -> None:
        described = json.dumps({"transports": transports, "nbytes": nbytes, **wanted})
        command = [*prefix, sys.executable, str(PROGRAM), described]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = self._line()
        self.id: str = hello["id"]
        self.address: int = hello["address"]
        self.nbytes: int = hello["nbytes"]

    def _line(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, command: str, *arguments: Any) -> dict[str, Any]:
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()
        reply = self._line()
        assert "error" not in reply, reply
        return reply

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        # Sent is not stopped: the kernel says when it is.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class Target:
    """A registered buffer of this process with guard zones around it."""

    GUARD = 4096

    def __init__(self, engine: onesided.Engine, nbytes: int) -> None:
        self.whole = np.zeros(nbytes + 2 * self.GUARD, np.uint8)
        self.whole[: self.GUARD] = self.whole[-self.GUARD :] = 0xA5
        self.data = self.whole[self.GUARD : -self.GUARD]
        self.address = self.data.ctypes.data
        self.handle = engine.register_mem(self.address, nbytes)

    def intact(self) -> bool:
        return bool((self.whole[: self.GUARD] == 0xA5).all() and (self.whole[-self.GUARD :] == 0xA5).all())


def until(condition, timeout_s: float = 20) -> bool:
    """Asks again until it holds; False when it never did. For what has no event to wait for."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.002)):
        if condition():
            return True
        pause.wait(0.002)
    return False


def footprint() -> tuple[int, int, int]:
    """File descriptors, threads and mappings of this process."""
    with open("/proc/self/maps") as maps:
        lines = sum(1 for _ in maps)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), lines
