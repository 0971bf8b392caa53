"""Whole programs with a Ray of their own: the example, and what is left when Ray has been shut down."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import onesided

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(onesided.__file__).resolve().parent.parent
PROGRAMS = Path(__file__).with_name("programs")
CANNOT = 77  # tests/process/two_hosts.py


def launch(command: list[str], folders: str = "") -> subprocess.CompletedProcess[str]:
    paths = ":".join([str(PACKAGE), folders, os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": paths, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=os.environ | settings
    )  # fmt: skip


def run(code: list[str]) -> str:
    """The output of a program; fails with all it said when the program does."""
    done = launch([sys.executable, *code])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_weight_sync_example() -> None:
    out = run(
        [str(ROOT / "examples/weight_sync/weight_sync.py"), "--rollouts", "2", "--updates", "20", "--width", "256"]
    )
    assert "version 20 is the same in the trainer and in 2 rollouts" in out
    told = re.findall(r"(\d+) versions taken.*registrations later: (\d+)$", out, re.MULTILINE)
    assert len(told) == 2
    for versions, registrations in told:
        assert int(versions) >= 20 // 3, "the trainer waits for who is more than two behind"
        assert registrations == "0"


def test_shutdown_leaves_nothing_and_ray_may_start_again() -> None:
    shared_before = set(os.listdir("/dev/shm"))
    assert "nothing is left" in run([str(PROGRAMS / "shutdown.py")])
    assert {name for name in set(os.listdir("/dev/shm")) - shared_before if "onesided" in name} == set()


def test_a_program_that_just_ends_leaves_nothing(until: Callable) -> None:
    shared_before = set(os.listdir("/dev/shm"))
    addresses = run([str(PROGRAMS / "exit.py")]).split()
    assert len(addresses) == 2
    for address in addresses:  # the driver's own, and that of an actor which Ray ends in its own time
        until(lambda address=address: not listens(address))
    assert {name for name in set(os.listdir("/dev/shm")) - shared_before if "onesided" in name} == set()


def listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_two_hosts_over_tcp() -> None:
    """A raylet in another network namespace: tcp alone, the cluster's secret from Ray's internal key-value store, and who has
    another secret is refused in words."""
    # A process namespace too: whatever Ray starts ends with it.
    spaces = ["-n", "-p", "--mount-proc", "--fork", "--kill-child"]
    own = ["unshare", *spaces] if os.geteuid() == 0 else ["unshare", "-Ur", *spaces]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let us make network namespaces (unshare fails)")
    folders = f"{ROOT / 'tests' / 'process'}:{PROGRAMS}"
    done = launch([*own, sys.executable, str(PROGRAMS / "other_host.py")], folders)
    if done.returncode == CANNOT:
        pytest.skip(f"this kernel lacks what the scenario needs: {done.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two hosts over tcp" in done.stdout
