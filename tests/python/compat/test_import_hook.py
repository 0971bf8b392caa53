"""Which package an import gets: only who asks gets ours, also in children, and an error is told at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onesided import compat
from onesided.compat import imports

SPAWNED = """
import multiprocessing
import sys

def origin(queue):
    import nixl._api
    queue.put(nixl._api.nixl_agent.__module__)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=origin, args=(queue,))
    child.start()
    print(queue.get(timeout=60))
    child.join()
"""


def run(code: str, *prefix: str, **changed: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != compat.VARIABLE} | changed
    command = [sys.executable, *prefix, *([sys.executable] if prefix else []), "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def real_package(tmp_path: Path) -> dict[str, str]:
    """A package named nixl that is not ours, on the path."""
    (tmp_path / "nixl").mkdir()
    (tmp_path / "nixl/__init__.py").write_text("WHOSE = 'real'\n")
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}


def test_nothing_is_replaced_unless_asked(real_package: dict[str, str]) -> None:
    assert run("import nixl; print(nixl.WHOSE)", **real_package).stdout.strip() == "real"


def test_the_command_replaces_an_installed_package(real_package: dict[str, str]) -> None:
    done = run("import nixl; print(nixl.nixl_agent.__module__)", "-m", "onesided", "run", "--as", "nixl", "--",
               **real_package)  # fmt: skip
    assert done.stdout.strip() == "onesided.compat.nixl._api", done.stderr


def test_only_the_named_api_is_replaced(real_package: dict[str, str]) -> None:
    done = run("import nixl; print(nixl.WHOSE)", "-m", "onesided", "run", "--as", "mooncake", "--", **real_package)
    assert done.stdout.strip() == "real", done.stderr


def test_install_reaches_spawned_children(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import onesided.compat\nonesided.compat.install('nixl')\n" + SPAWNED)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "onesided.compat.nixl._api", done.stderr


def test_install_after_the_import_is_refused(real_package: dict[str, str]) -> None:
    done = run("import nixl, onesided.compat; onesided.compat.install('nixl')", **real_package)
    assert "nixl was imported already" in done.stderr


@pytest.mark.parametrize("names", ["nccl", "nixl,ucx"])
def test_an_unknown_name_ends_the_process(names: str) -> None:
    # The variable without the command: a child of the command has both set.
    changed = compat.environment(["nixl"]) | {compat.VARIABLE: names}
    done = run("print('went on')", **changed)
    assert done.returncode == 2
    assert names.rpartition(",")[2] in done.stderr
    assert "went on" not in done.stdout


def test_a_module_that_is_not_provided_is_refused_by_name() -> None:
    done = run("import mooncake.store", "-m", "onesided", "run", "--as", "mooncake", "--")
    assert "onesided stands in for mooncake here and has no such module" in done.stderr


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    path = compat.environment(["nixl"]).get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    done = run("pass", **{compat.VARIABLE: "nixl", "PYTHONPATH": os.pathsep.join([path, str(tmp_path)])})
    assert "theirs" in done.stdout, done.stderr


def test_the_pth_file_does_nothing_without_the_variable() -> None:
    line = (Path(imports.package_folder()) / "onesided_compat.pth").read_text()
    script = f"import sys\n{line}\nprint('onesided' in sys.modules, sys.meta_path[0].__class__.__name__)"
    assert run(script).stdout.split()[0] == "False"
    assert run(script, ONESIDED_AS="nixl").stdout.split() == ["True", "Finder"]


def test_doctor_says_what_an_import_would_get() -> None:
    done = run("import onesided.cli.doctor as d; print(d.as_text(d.drop_ins(), False))", "-m", "onesided", "run", "--as",
               "nixl", "--")  # fmt: skip
    assert "onesided (onesided.compat.nixl)" in done.stdout, done.stderr
