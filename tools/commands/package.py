"""Installs onesided into .venv with pip, built in the tree of a CMake preset that ctest uses too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from . import apt
from .environment import child_environment, why_pip_failed
from .lock import CheckoutLock
from .paths import BUILD, PYTHON, REQUIREMENTS, ROOT, tool
from .problem import Problem
from .stamps import Stamp, digest
from .steps import run_step

PRESET = "release"
_INPUTS = (
    "CMakeLists.txt", "CMakePresets.json", "pyproject.toml", "README.md", "cmake", "include", "src", "bindings", "ascend_sim",
    "python/onesided",
)  # fmt: skip
_GIB = 1 << 30


def build_jobs() -> int:
    """As many compilers as there are cores and memory for (a file over torch's headers takes 1.5 GiB)."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // (2 * _GIB)))


def build_environment() -> dict[str, str]:
    settings = {"CMAKE_BUILD_PARALLEL_LEVEL": str(build_jobs())}
    if shutil.which("ccache"):
        settings |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "1"}
    return child_environment(**settings)


def why_build_failed(output: str) -> str:
    """The sentence for a failed configure or compile."""
    if "No CMAKE_CXX_COMPILER could be found" in output:
        return "no C++ compiler works here; install g++ 11 or newer (apt-get install g++)."
    compiler = next((line for line in output.splitlines() if re.search(r"\b(fatal )?error: ", line)), None)
    if compiler:
        return f"the C++ build failed: {compiler.strip()}"
    at = output.find("CMake Error")
    if at >= 0:
        return f"CMake stopped: {' '.join(output[at:].split()[:40])}"
    return why_pip_failed(output)


def _check_compiler() -> None:
    """A compiler too old for C++20 is told apart here, not by a page of its errors."""
    name = apt.compiler() or "c++"
    program = "#include <concepts>\n#include <semaphore>\n#include <span>\nint main() {}\n"
    command = [name, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = (done.stderr.strip().splitlines() or ["it failed"])[0]
        raise Problem(f"{name} cannot compile C++20 ({first}); install g++ 11 or newer, or set CXX to one.")


def require(lock: CheckoutLock) -> None:
    """Makes sure that .venv holds the onesided of this checkout."""
    paths = [ROOT / name for name in _INPUTS if (ROOT / name).exists()]
    stamp = Stamp("package")
    value = digest(paths=[*paths, REQUIREMENTS / "build.txt"], words=[PRESET])
    if stamp.matches(value):
        return
    lock.exclude()
    if stamp.matches(value):
        return
    stamp.clear()
    _check_compiler()
    command = [
        str(PYTHON), "-m", "pip", "install", "-v", "--no-build-isolation", "--no-deps", "--force-reinstall",
        "--no-input", f"--config-settings=build-dir={BUILD / PRESET}", f"--config-settings=cmake.args=--preset={PRESET}",
        "--config-settings=build.targets=onesided_package", str(ROOT),
    ]  # fmt: skip
    run_step("Build and install onesided", command, failure=why_build_failed, env=build_environment())
    _check_installed()
    stamp.write(value)


def _check_installed() -> None:
    """What pip calls installed must load: a wheel without its libraries is no build."""
    command = [str(PYTHON), "-c", "import onesided._core"]
    done = subprocess.run(command, cwd=BUILD, env=child_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it crashed"])[-1]
        raise Problem(f"onesided was installed but its core does not load: {last}")


def build(preset: str, *targets: str, title: str) -> None:
    """Builds a preset's tree: `targets`, or all of it."""
    tree = BUILD / preset
    environment = build_environment()
    if not Path(tree, "build.ninja").exists():
        run_step(f"Configure {preset}", [tool("cmake"), "--preset", preset], failure=why_build_failed, env=environment)
    command = [tool("cmake"), "--build", str(tree)]
    if targets:
        command += ["--target", *targets]
    run_step(title, command, failure=why_build_failed, env=environment)
