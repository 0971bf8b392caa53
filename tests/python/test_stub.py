"""The golden stub of the core: whoever changes the Python surface sees it in the diff."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden/core.pyi"


def test_the_stub_is_what_the_module_has(tmp_path: Path) -> None:
    if importlib.util.find_spec("nanobind") is None:
        pytest.skip("nanobind, which writes the stub, is not installed (requirements/build.txt)")
    fresh = tmp_path / "_core.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "onesided._core", "-o"]
    done = subprocess.run([*command, str(fresh)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = "python -m nanobind.stubgen -m onesided._core -o tests/python/golden/core.pyi"
    assert fresh.read_text() == GOLDEN.read_text(), f"the bindings have changed; write the stub again: {again}"
