"""The mistakes of a command line are told at once and in one line."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

import onesided
import smoke_npu
from onesided.cli import preflight
from onesided.cli.demo import run


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onesided", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_version_is_an_option_and_a_command() -> None:
    assert command("--version").stdout == command("version").stdout == f"{onesided.__version__}\n"


def test_figures_that_cannot_be_written_stop_the_demo_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(preflight, "obstacle", lambda: None)
    assert run.run(tmp_path / "missing" / "figures.json") == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("simulated", "no_demo", "shown"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_the_smoke_test_plays_the_demo_on_the_simulated_runtime_only(
    simulated: bool, no_demo: bool, shown: bool
) -> None:
    options = argparse.Namespace(simulated=simulated, no_demo=no_demo, devices=[0, 1], json=Path("report.json"))
    assert ("demo" in smoke_npu.steps_of(options)) == shown
