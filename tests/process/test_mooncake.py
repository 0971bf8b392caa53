"""The unmodified Mooncake-for-Ascend wheel, two processes on two simulated NPUs: its engine is ours under the vendor's
names."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from peers import until

import onesided.ascend_sim

PROGRAM = Path(__file__).with_name("mooncake_peer.py")
MIB = 1 << 20


def ascend_mooncake() -> list[str]:
    """What PYTHONPATH needs for the Ascend build of Mooncake; its sister wheels have the same package name."""
    folder = os.environ.get("ONESIDED_MOONCAKE_NPU")  # where `pip install --target` put it, beside another one
    if folder:
        return [folder]
    spec = importlib.util.find_spec("mooncake")
    homes = [Path(home) for home in (spec.submodule_search_locations or [])] if spec else []
    if not any((home / "ascend_transport.so").exists() for home in homes):
        pytest.skip("mooncake-transfer-engine-npu is not installed", allow_module_level=True)
    return []


if platform.machine() != "x86_64":
    pytest.skip("Mooncake-for-Ascend has wheels for x86_64 only", allow_module_level=True)
MOONCAKE = ascend_mooncake()


class MooncakePeer:
    """One mooncake_peer.py. A context manager; killed at the end, whatever happened."""

    def __init__(self, settings: dict[str, str] | None = None, **wanted: Any) -> None:
        environment = {**os.environ, **onesided.ascend_sim.environment(), **(settings or {})}
        path = [*MOONCAKE, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(path)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        hello = self._line()
        self.name: str = hello["name"]
        self.address: int = hello["address"]
        self.registered: int = hello["registered"]

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # torch_npu writes warnings there too.
        line = next((line for line in self.process.stdout if line.startswith("{")), None)
        if line is None:
            raise RuntimeError(f"the peer ended with {self.process.wait()}:\n{self.log()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()
        return self._line()["result"]

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> MooncakePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            if pipe is not None:
                pipe.close()


def batch(count: int, nbytes: int) -> list[tuple[int, int]]:
    """`count` disjoint (offset, bytes), not in order."""
    return [((i * 7 % count) * nbytes, nbytes) for i in range(count)]


# Batches from 64 B to 256 MiB; 7 and each count have no common factor, so every place is visited once.
BATCHES = [batch(1, 64), batch(100, 64), batch(1024, 4096), batch(64, MIB), batch(1, 256 * MIB)]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_batches_are_written_and_read(mode: str) -> None:
    settings = {"ASCEND_USE_ASYNC_TRANSFER": "1"} if mode == "async" else {}
    with (
        MooncakePeer(settings, memory="device", npu=0, nbytes=256 * MIB) as here,
        MooncakePeer(settings, memory="device", npu=1, nbytes=256 * MIB) as there,
    ):
        assert (here.registered, there.registered) == (0, 0)
        for seed, items in enumerate(BATCHES):
            total = sum(nbytes for _, nbytes in items)
            moves = [(offset, there.address + offset, nbytes) for offset, nbytes in items]
            here.ask("fill", 0, total, seed)
            assert here.ask("transfer", "WRITE", there.name, moves) == 0, here.log()
            assert there.ask("holds", 0, total, seed)
            there.ask("fill", 0, total, 100 + seed)
            assert here.ask("transfer", "READ", there.name, moves) == 0, here.log()
            assert here.ask("holds", 0, total, 100 + seed)


@pytest.mark.parametrize("memory", ["host", "pool"])
def test_other_memory(memory: str) -> None:
    if memory == "pool" and importlib.util.find_spec("torch_npu") is None:
        pytest.skip("torch_npu is not installed")
    with (
        MooncakePeer(memory=memory, npu=0, nbytes=8 * MIB) as here,
        MooncakePeer(memory="device", npu=1, nbytes=8 * MIB) as there,
    ):
        assert here.registered == 0, here.log()
        there.ask("fill", 0, 8 * MIB, 1)
        assert here.ask("transfer", "READ", there.name, [(0, there.address, 8 * MIB)]) == 0, here.log()
        assert here.ask("holds", 0, 8 * MIB, 1)


def test_a_buffer_pool_stages_host_memory() -> None:
    settings = {"ASCEND_BUFFER_POOL": "4:8"}  # then Mooncake does not register host memory at all
    with (
        MooncakePeer(settings, memory="host", nbytes=40 * MIB) as here,
        MooncakePeer(settings, memory="host", nbytes=40 * MIB) as there,
    ):
        here.ask("fill", 0, 40 * MIB, 1)
        moves = [(0, there.address, 64), (64, there.address + 64, 40 * MIB - 64)]
        assert here.ask("transfer", "WRITE", there.name, moves) == 0, here.log()
        assert there.ask("holds", 0, 40 * MIB, 1)
        there.ask("fill", 0, 40 * MIB, 2)
        assert here.ask("transfer", "READ", there.name, moves) == 0, here.log()
        assert here.ask("holds", 0, 40 * MIB, 2)


@pytest.mark.parametrize("misaligned", ["here", "there"])
def test_misaligned_memory_is_503900_at_connect(misaligned: str) -> None:
    settings = {"ASCEND_AUTO_CONNECT": "0"}  # Mooncake connects itself, and logs what Connect answers
    with (
        MooncakePeer(settings, memory="device", npu=0, nbytes=4 * MIB, skew=512 * (misaligned == "here")) as here,
        MooncakePeer(settings, memory="device", npu=1, nbytes=4 * MIB, skew=512 * (misaligned == "there")) as there,
    ):
        assert (here.registered, there.registered) == (0, 0), "registering does not call the driver"
        assert here.ask("transfer", "WRITE", there.name, [(0, there.address, 4096)]) < 0
        log = here.log()
        assert "status: 503900" in log
        words = log if misaligned == "here" else there.log()
        bad = here.address if misaligned == "here" else there.address
        assert f"Invalid para. va={bad:#x}" in words
        assert "page_size=2097152" in words


def test_ranges_that_nobody_registered_are_refused() -> None:
    with (
        MooncakePeer(memory="device", npu=0, nbytes=2 * MIB) as here,
        MooncakePeer(memory="device", npu=1, nbytes=2 * MIB) as there,
    ):
        there.ask("fill", 0, 2 * MIB, 1)
        assert here.ask("transfer", "WRITE", there.name, [(0, there.address + 2 * MIB - 64, 65)]) < 0
        assert there.ask("holds", 0, 2 * MIB, 1)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_killed_peer_is_an_error(mode: str) -> None:
    settings = {"ASCEND_TRANSFER_TIMEOUT": "10000"}
    if mode == "async":
        settings["ASCEND_USE_ASYNC_TRANSFER"] = "1"
    with (
        MooncakePeer(settings, memory="device", npu=0, nbytes=2 * MIB) as here,
        MooncakePeer(settings, memory="device", npu=1, nbytes=2 * MIB) as there,
    ):
        moves = [(0, there.address, 4096)]
        assert here.ask("transfer", "READ", there.name, moves) == 0, here.log()
        there.kill()
        # The kernel keeps memory of the dead that is mapped here; that its owner is gone is known a moment later.
        assert until(lambda: here.ask("transfer", "READ", there.name, moves) < 0)
