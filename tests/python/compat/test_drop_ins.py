"""One suite for each API, run over our drop-in always and over the real package where a cached environment has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onesided import compat

# The real packages sometimes crash on a busy machine, so they are not tested by default.
REAL_VARIABLE = "ONESIDED_TEST_REAL_PACKAGES"
HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "onesided/compat/peers/bin/python"


def run_suite(python: str, suite: str, environment: dict[str, str]) -> None:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(HERE), "-c", os.devnull]
    done = subprocess.run(
        [*command, str(HERE / suite)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("api", ["mooncake", "nixl", "memfabric"])
def test_ours(api: str) -> None:
    run_suite(
        sys.executable, f"{api}_suite.py", os.environ | compat.environment([api]) | {"ONESIDED_HOST": "127.0.0.1"}
    )


@pytest.mark.parametrize("api", ["mooncake", "nixl"])
def test_the_real_package(api: str) -> None:
    if REAL_VARIABLE not in os.environ or not CACHE.exists():
        pytest.skip(f"set {REAL_VARIABLE}=1 to run the suite over the real packages; docs/compat.md says how to get them")
    environment = {name: value for name, value in os.environ.items() if name not in (compat.VARIABLE, "PYTHONPATH")}
    run_suite(str(CACHE), f"{api}_suite.py", environment)
