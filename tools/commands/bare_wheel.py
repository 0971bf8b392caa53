"""`pip install .` must work where there is no torch: the wheel is built in isolation and tried in a bare venv."""

from __future__ import annotations

import shutil
import subprocess
import sys

from . import runners
from .environment import child_environment, why_pip_failed
from .package import build_environment, why_build_failed
from .paths import BUILD, PYTHON, ROOT
from .problem import Problem
from .steps import run_step
from .tally import Tally


def run() -> Tally:
    """The tests of tests/wheel in a virtual environment that holds the wheel and pytest, and no torch."""
    bare, wheels = BUILD / "wheel-venv", BUILD / "wheels"
    for folder in (bare, wheels):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        build = [str(PYTHON), "-m", "pip", "wheel", "--no-deps", "--no-input", "-v", "-w", str(wheels), str(ROOT)]
        run_step("Build the wheel in isolation", build, failure=why_build_failed, env=build_environment())
        subprocess.run([sys.executable, "-m", "venv", str(bare)], check=True)
        wheel = next(wheels.glob("onesided-*.whl"))
        pins = (ROOT / "requirements" / "test.txt").read_text().split()
        pin = next(word for word in pins if word.startswith("pytest=="))
        install = [str(bare / "bin" / "python"), "-m", "pip", "install", "--no-input", str(wheel), pin]
        run_step("Install it without torch", install, failure=why_pip_failed, env=child_environment())
    except Problem as problem:
        print(problem)
        return Tally(failed=1)
    return runners.run_pytest(["tests/wheel"], name="wheel", python=str(bare / "bin" / "python"))
