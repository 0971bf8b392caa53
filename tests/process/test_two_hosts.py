"""The tcp transport between two network namespaces: what same-host tests cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("two_hosts.py")
CANNOT = 77  # two_hosts.py
LIMIT_S = 300


def run_between_hosts(scenario: str) -> None:
    own_namespaces = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]
    if subprocess.run([*own_namespaces, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let us make network namespaces (unshare fails)")
    done = subprocess.run(
        [*own_namespaces, sys.executable, str(PROGRAM), scenario],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode == CANNOT:
        pytest.skip(f"this kernel lacks what the scenario needs: {done.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("scenario", ["transfers", "strangers", "silence", "interruption", "loss", "resets"])
def test_between_two_hosts(scenario: str) -> None:
    run_between_hosts(scenario)
