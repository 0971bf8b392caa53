"""What a machine can check, no reader should have to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import apt
from .environment import child_environment
from .paths import BUILD, PYTHON, ROOT, tool

# The annotations of base/mutex.h, of which g++ knows nothing.
_THREAD_SAFETY = (
    "clang++-16", "-fsyntax-only", "-std=c++20", "-Isrc", "-I.", "-Iascend_sim/hixl",
    "-Wthread-safety", "-Werror=thread-safety",
)  # fmt: skip
_ANNOTATED = ("src/", "ascend_sim/acl/", "ascend_sim/faults/", "ascend_sim/hixl/")


@dataclass(frozen=True)
class Check:
    name: str
    command: list[str]


def _sources(*suffixes: str) -> list[str]:
    folders = ("src", "bindings", "ascend_sim", "tests", "bench")
    return sorted(
        str(path.relative_to(ROOT))
        for folder in folders
        for path in Path(ROOT, folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    )


def _annotated() -> list[str]:
    return [name for name in _sources(".cc") if name.startswith(_ANNOTATED) and not name.endswith("_test.cc")]


def checks(deep: bool = False) -> list[Check]:
    """The linters in the order of their price. `deep` adds what needs clang and takes minutes."""
    listed = [
        Check("tidy", [sys.executable, "tools/tidy.py"]),
        Check("clang-format", [tool("clang-format"), "--dry-run", "-Werror", *_sources(".cc", ".h")]),
        Check("ruff", [tool("ruff"), "check", "--quiet", "python", "tools", "tests", "bench", "examples"]),
        Check("codespell", [tool("codespell")]),
        Check("mypy", [str(PYTHON), "-m", "mypy", "python/onesided", "tools"]),
    ]
    if deep:
        files = [name for name in _sources(".cc") if name.startswith("src/")]
        listed.append(Check("thread safety", [*_THREAD_SAFETY, *_annotated()]))
        listed.append(Check("clang-tidy", ["clang-tidy-16", "--quiet", "-p", str(BUILD / "release"), *files]))
    return listed


def run(deep: bool = False) -> list[tuple[str, bool]]:
    """Runs every check, prints what each that fails has to say, and returns (name, passed)."""
    if deep:
        apt.require(apt.DEEP_LINT)
    results = []
    for check in checks(deep):
        done = subprocess.run(
            check.command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False
        )
        passed = done.returncode == 0
        print(f"  {'ok' if passed else '!!'} {check.name}", flush=True)
        if not passed or check.name == "tidy":
            print((done.stdout + done.stderr).rstrip(), flush=True)
        results.append((check.name, passed))
    return results
