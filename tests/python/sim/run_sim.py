"""Tests of the simulated runtime run programs in processes of their own, each on a machine of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from onesided import ascend_sim

HERE = Path(__file__).parent


def libraries_or_skip() -> Path:
    try:
        return ascend_sim.library_folder()
    except ascend_sim.SimError as error:
        pytest.skip(str(error))


def machine_name() -> str:
    """A simulated machine that no other test shares."""
    return f"test-{uuid.uuid4().hex[:16]}"


def sim_environment(machine: str | None = None, **settings: str) -> dict[str, str]:
    """The environment of a program on a simulated machine; `settings` are further variables."""
    libraries_or_skip()
    base = {name: value for name, value in os.environ.items() if not name.startswith("ONESIDED_SIM")}
    return {
        **base,
        **ascend_sim.environment(base=base),
        "ONESIDED_SIM_MACHINE": machine or machine_name(),
        "TORCH_NPU_WARNING_DISABLE": "1",
        **settings,
    }


def run(program: str | Path, *arguments: str, timeout: int = 120, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code, or a file beside this one, to its end."""
    command = [sys.executable, str(program)] if isinstance(program, Path) else [sys.executable, "-c", program]
    return subprocess.run(
        [*command, *arguments],
        env=sim_environment(**settings),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def passed(program: str | Path, *arguments: str, timeout: int = 120, **settings: str) -> str:
    """What a program that must end well printed."""
    done = run(program, *arguments, timeout=timeout, **settings)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
