"""The frameworks that tests run unmodified, each in an environment of its own, made when it is missing.

An environment is a virtual environment below ${XDG_CACHE_HOME:-~/.cache}/onesided/frameworks that holds the framework and
what its import needs, pinned and without their dependencies. torch, numpy, Ray and pytest are shared with .venv: their
packages are linked into one folder that every environment searches last. torch_npu is not among them: frameworks would
take the machine for one with NPUs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import environment, runners
from .framework_packages import PINS
from .paths import PYTHON, ROOT, VENV
from .problem import Problem
from .stamps import digest
from .steps import run_step
from .tally import Tally

_SHARED_VARIABLE = "ONESIDED_SHARED_PACKAGES"
_NOT_SHARED = ("torch_npu", "pip", "__pycache__", "mooncake", "distutils-precedence")
# One line that Python runs at its start: the shared folder comes after the environment's own packages.
_SHARED_PTH = f"import os, site; site.addsitedir(os.environ.get('{_SHARED_VARIABLE}', os.devnull))\n"


@dataclass(frozen=True)
class Framework:
    """One framework's environment and its tests. A value."""

    name: str
    tests: tuple[str, ...]  # files or folders below tests/frameworks
    imports: str  # modules that must import before a test runs
    in_ci: bool = False  # its tests marked `ci` run in ./do test
    unused: tuple[str, ...] = ()  # files for a GPU that nothing here loads: gigabytes, not kept


FRAMEWORKS = (
    Framework(
        name="vllm-0.34.0",
        tests=("vllm",),
        imports="vllm.v1.core.sched.scheduler, vllm.distributed.kv_transfer.kv_connector.v1.nixl",
        in_ci=True,
        unused=("vllm/**/*.so",),
    ),
    Framework(
        name="vllm-0.18.0",
        tests=("vllm",),
        imports="vllm.v1.core.sched.scheduler, vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector",
        unused=("vllm/**/*.so",),
    ),
    Framework(
        name="verl-0.9.1",
        tests=("verl",),
        imports="verl.checkpoint_engine.base",
    ),
)


def cache_folder() -> Path:
    """Where the environments live."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "onesided" / "frameworks"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two ./do of two checkouts make one environment once."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _site_packages(prefix: Path) -> Path:
    return prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def _share(folder: Path) -> Path:
    """The folder with links to .venv's packages, brought up to date."""
    shared = folder / f"shared-{hashlib.sha256(str(VENV).encode()).hexdigest()[:12]}"
    shared.mkdir(exist_ok=True)
    wanted = {
        entry.name: entry
        for entry in _site_packages(VENV).iterdir()
        if not entry.name.startswith(_NOT_SHARED)
    }
    for link in shared.iterdir():
        if link.name not in wanted or os.readlink(link) != str(wanted[link.name]):
            link.unlink()
    for name, entry in wanted.items():
        if not os.path.lexists(shared / name):
            (shared / name).symlink_to(entry)
    return shared


def _why_failed(name: str) -> str:
    return f"the environment of {name} could not be made"


def require(framework: Framework) -> tuple[Path, dict[str, str]]:
    """The Python of a framework's environment and the variables it needs; made first where it is missing or old."""
    folder = cache_folder()
    with _locked(folder):
        variables = {_SHARED_VARIABLE: str(_share(folder)), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        prefix = folder / framework.name
        python, stamp = prefix / "bin" / "python", prefix / ".complete"
        pins = PINS[framework.name].split()
        wanted = digest(words=[sys.version, *pins, *framework.unused, _SHARED_PTH])
        if stamp.exists() and stamp.read_text() == wanted:
            return python, variables
        shutil.rmtree(prefix, ignore_errors=True)
        subprocess.run([str(PYTHON), "-m", "venv", "--without-pip", str(prefix)], check=True)
        site = _site_packages(prefix)
        (site / "onesided-shared.pth").write_text(_SHARED_PTH)
        run_step(
            f"Environment of {framework.name}: {len(pins)} packages",
            [
                str(PYTHON),
                "-m",
                "pip",
                "--python",
                str(python),
                "install",
                "--no-deps",
                "--no-compile",
                "--progress-bar",
                "off",
                *pins,
            ],
            failure=lambda output: f"{_why_failed(framework.name)}: {environment.why_pip_failed(output)}",
            env=environment.child_environment(),
        )
        for pattern in framework.unused:
            for path in site.glob(pattern):
                path.unlink()
        run_step(
            f"Import of {framework.name}",
            [str(python), "-c", f"import {framework.imports}"],
            failure=lambda output: (
                f"{_why_failed(framework.name)}: {(output.strip().splitlines() or ['it said nothing'])[-1]}"
            ),
            env={**environment.child_environment(), **variables},
        )
        stamp.write_text(wanted)
        return python, variables


def run(framework: Framework, arguments: Sequence[str] = ()) -> Tally:
    """Runs a framework's tests inside its environment."""
    try:
        python, variables = require(framework)
    except (Problem, OSError, subprocess.CalledProcessError) as problem:
        print(problem)
        return Tally(failed=1)
    places = [str(ROOT / "tests" / "frameworks" / name) for name in framework.tests]
    return runners.run_pytest(
        [*places, *arguments],
        name=f"frameworks-{framework.name}",
        python=str(python),
        settings=variables,
    )


def run_all() -> Tally:
    """All frameworks, one after the other."""
    return sum((run(framework) for framework in FRAMEWORKS), Tally())


def run_ci() -> Tally:
    """What CI runs of them."""
    return sum((run(framework, ["-m", "ci"]) for framework in FRAMEWORKS if framework.in_ci), Tally())
