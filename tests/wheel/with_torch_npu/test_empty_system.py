"""Installs the wheel together with torch_npu on a system that has only Python. Run by `./do test --all` in a root
folder of Debian, by the interpreter of the environment that the wheel was installed into."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parent / "programs"


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def simulated(program: str) -> str:
    return run("-m", "onesided", "sim", "--", sys.executable, str(PROGRAMS / program))


@pytest.mark.parametrize("program", ["cc", "gcc", "g++", "clang", "cmake", "make"])
def test_there_is_no_compiler(program: str) -> None:
    assert shutil.which(program) is None


@pytest.mark.parametrize("library", ["libfmt", "libspdlog"])
def test_there_is_no_package_of_ours(library: str) -> None:
    assert not list(Path("/usr/lib").rglob(f"{library}*"))


def test_what_is_installed_is_the_wheel() -> None:
    import onesided

    assert Path(onesided.__file__).is_relative_to(sys.prefix)
    assert onesided.__version__ == importlib.metadata.version("onesided")


def test_importing_it_does_not_import_torch() -> None:
    run("-c", "import sys, onesided, onesided.engine; assert 'torch' not in sys.modules")


def test_an_aligned_pool() -> None:
    assert simulated("pool.py").strip() == "2097152 aligned, equal"


def test_two_engines() -> None:
    assert run(str(PROGRAMS / "engine.py")).strip() == "COMPLETED, equal"


def test_a_tensor_between_two_actors_of_ray() -> None:
    assert run(str(PROGRAMS / "ray_transfer.py")).strip() == "4950.0 over HIXL"
