"""On a machine that lacks something, the newcomer reads one sentence that names it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from commands import apt, package
from commands.problem import Problem

ROOT = Path(package.__file__).resolve().parents[2]


def do(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **settings}
    return subprocess.run(
        [str(ROOT / "do"), *arguments], capture_output=True, text=True, env=environment, check=False, timeout=60
    )


def test_no_compiler_and_no_way_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "compiler", lambda: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(apt.shutil, "which", lambda name: None if name == "sudo" else f"/usr/bin/{name}")
    with pytest.raises(Problem, match=r"missing: .*g\+\+, and neither root nor sudo"):
        apt.require()


def test_no_compiler_elsewhere_than_on_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt.shutil, "which", lambda name: None)
    with pytest.raises(Problem, match=r"not Debian or Ubuntu; install g\+\+"):
        apt.require()


def test_a_compiler_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old-cxx"
    old.write_text("#!/bin/sh\necho \"unrecognized command line option '-std=c++20'\" >&2\nexit 1\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    with pytest.raises(Problem, match=r"old-cxx cannot compile C\+\+20 \(unrecognized command line option"):
        package._check_compiler()


def test_a_python_that_does_not_fit_is_named() -> None:
    done = do("lint", ONESIDED_PYTHON="/bin/false")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "is not a Python 3.10 to 3.13" in done.stderr


def test_an_unknown_command_names_the_known_ones() -> None:
    done = do("fly")
    assert done.returncode == 2
    assert "no command 'fly'" in done.stderr and "./do demo" in done.stderr


def test_a_real_runtime_stops_the_demo_before_anything_is_installed(tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libascendcl.so").touch()
    done = do("demo", ASCEND_HOME_PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "a real Ascend runtime is present" in done.stderr


@pytest.mark.parametrize("command", ["demo", "test", "lint", "fuzz", "clean", "bench"])
def test_help_sets_nothing_up(command: str) -> None:
    done = do(command, "--help")
    assert done.returncode == 0 and "usage" in done.stdout
