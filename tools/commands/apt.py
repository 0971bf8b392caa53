"""What Debian and Ubuntu package, we do not vendor. Installs what is missing, asks nothing where nothing is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from .problem import Problem
from .steps import run_step

# Headers and libraries of the build and of its tests, and what real wheels need beside themselves.
BASE = (
    "libfmt-dev", "libspdlog-dev", "libssl-dev", "libgtest-dev", "libgmock-dev", "libbenchmark-dev",
    "libibverbs1", "libnuma1", "iproute2",
)  # fmt: skip
# libcurl4 is called libcurl4t64 since Ubuntu 24.04: any of a group will do.
ANY_OF = (("libcurl4", "libcurl4t64"),)
COMPILER = ("g++",)
FUZZ = ("clang-16", "libclang-rt-16-dev")
CROSS = ("g++-aarch64-linux-gnu",)
MODEL_CHECKER = ("relacy-dev",)
# What tests of the C interface need beside a C compiler; where one is missing, its test is skipped and says so.
C_INTERFACE = ("abigail-tools", "golang-go", "pkg-config")
DEEP_LINT = ("clang-16", "clang-tidy-16")


def installed(packages: Sequence[str]) -> set[str]:
    """Those of `packages` that are installed, whatever the architecture their name carries."""
    form = "-f=${Package} ${db:Status-Status}\n"
    answer = subprocess.run(["dpkg-query", "-W", form, *packages], capture_output=True, text=True, check=False)
    pairs = [line.split() for line in answer.stdout.splitlines()]
    return {pair[0] for pair in pairs if pair[-1] == "installed"}


def compiler() -> str | None:
    """A C++ compiler: $CXX, or the usual names."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    return None


def missing(extra: Sequence[str] = ()) -> list[str]:
    """The packages that are not there, in the order they were asked for."""
    present = installed([*BASE, *extra, *(name for group in ANY_OF for name in group)])
    wanted = [package for package in (*BASE, *extra) if package not in present]
    wanted += [group[0] for group in ANY_OF if not present.intersection(group)]
    if compiler() is None:
        wanted += COMPILER
    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").exists() and include.startswith("/usr/include/"):
        wanted.append(f"{Path(include).name}-dev")
    return wanted


def _as_root(packages: Sequence[str]) -> list[str]:
    """The words that make a command run as root."""
    if os.geteuid() == 0:
        return []
    what = f"these packages are missing: {' '.join(packages)}"
    if shutil.which("sudo") is None:
        raise Problem(
            f"{what}, and neither root nor sudo is there to install them; have them installed, then run this again."
        )
    # sudo asks for its password here, on the terminal, and not behind the progress display.
    if subprocess.run(["sudo", "-v"], check=False).returncode != 0:
        raise Problem(f"{what}; sudo refused to install them: have them installed, then run this again.")
    return ["sudo", "-n"]


def require(extra: Sequence[str] = ()) -> None:
    """Makes sure of the base packages and of `extra`."""
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        if compiler() is None:
            raise Problem("no C++ compiler was found and this is not Debian or Ubuntu; install g++ 11 or newer.")
        return  # another distribution: CMake will name what it does not find
    packages = missing(extra)
    if packages:
        _install(packages)
    if compiler() is None:
        raise Problem("no C++ compiler was found although g++ is installed; check $CXX and $PATH.")


def _install(packages: Sequence[str]) -> None:
    install = [
        *_as_root(packages), "env", "DEBIAN_FRONTEND=noninteractive",
        "apt-get", "install", "-y", "--no-install-recommends", *packages,
    ]  # fmt: skip

    def refused(_: str) -> str:
        names = " ".join(packages)
        return f"apt-get could not install {names}; check the network and apt's sources, then run this again."

    title = f"Debian packages: {' '.join(packages)}"
    try:
        run_step(title, install, failure=refused)
    except Problem:
        run_step("apt-get update", [*_as_root(packages), "apt-get", "update"], failure=refused)
        run_step(title, install, failure=refused)
