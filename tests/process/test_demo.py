"""The demo is the first thing a newcomer runs: whole, twice at once, and with Ctrl-C in the middle."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch_npu", "ray")),
    reason="the demo shows the torch_npu wheel and Ray; requirements/run.txt has them",
)

COMMAND = [sys.executable, "-m", "onesided", "demo"]


def start(*arguments: str) -> subprocess.Popen[str]:
    """The demo in a process group of its own, as a terminal would run it."""
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"the demo ended without saying {words!r}:\n{seen}")


def traces() -> set[str]:
    """What a demo could leave behind: its files and shared memory."""
    temporary = Path(tempfile.gettempdir()).glob("onesided-demo-*")
    shared = [path for pattern in ("onesided*", "plasma*", "ray*") for path in Path("/dev/shm").glob(pattern)]
    return {str(path) for path in (*temporary, *shared)}


def processes() -> Iterator[int]:
    """Every process that a demo started, told by the variable they inherit."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"ONESIDED_DEMO_RUN=" in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            continue


def test_the_whole_demo_holds_and_a_second_one_is_told_to_wait(tmp_path: Path) -> None:
    before = traces()
    with start("--json", str(tmp_path / "out.json")) as demo:
        seen = read_until(demo, "1. The problem")
        second = subprocess.run(COMMAND, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 1 and "another demo of this user is running" in second.stderr
        assert demo.stdout is not None
        seen += demo.stdout.read()
    assert demo.returncode == 0, seen
    figures = json.loads((tmp_path / "out.json").read_text())
    assert figures["misaligned_plain"] > 0 and figures["misaligned_pool"] == 0
    assert "503900" in figures["error_plain"]
    assert figures["reserved_pool_bytes"] < figures["reserved_workaround_bytes"]
    assert (figures["tensors"], figures["bytes"]) == (290, 988065536)
    assert figures["checksum_ok"] is True and figures["registrations_after_first"] == 0
    assert "simulated" in figures["device"]
    assert list(processes()) == [] and traces() <= before


@pytest.mark.parametrize("moment", ["plain tensors", "starting Ray", "update 2 of 10"])
def test_an_interrupt_leaves_nothing_behind(moment: str) -> None:
    before = traces()
    with start() as demo:
        seen = read_until(demo, moment)
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.stdout is not None
        seen += demo.stdout.read()
    assert demo.returncode == 130, seen
    assert "interrupted" in seen and "Traceback" not in seen
    assert list(processes()) == [] and traces() <= before
