"""The wheel on a system that has Python and nothing else: a root folder of Debian, torch_npu 2.9.0 beside it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import roots, runners, tally, versions, wheel
from .cache import cache_folder, pip_step
from .paths import ROOT
from .problem import Problem
from .tally import Tally

TORCH_NPU = "2.9.0"
_WHEELS, _TESTS, _TORCH, _COMMON = "/srv/wheels", "/srv/tests", "/srv/torch", "/srv/common"
_ENVIRONMENT = "/tmp/environment"
_REPORT = "REPORT "

# What a user would do, and then the tests. The environment sees torch and Ray where they were unpacked.
_INSTALL = f"""
set -e
python3 -m venv {_ENVIRONMENT}
{_ENVIRONMENT}/bin/pip install -q --no-index --find-links {_WHEELS} onesided $MORE
site=$({_ENVIRONMENT}/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for folder in "$@"; do echo "$folder" >> $site/beside.pth; done
cd /tmp
status=0
{_ENVIRONMENT}/bin/python -m pytest -p no:cacheprovider -q -c /dev/null --rootdir={_TESTS} --junitxml=/tmp/report.xml $TESTS || status=$?
echo "{_REPORT}$(tr -d '\\n' < /tmp/report.xml)"
exit $status
"""


def dependencies(built: Path, python_version: str, machine: str, *more: str) -> Path:
    """A folder with the wheel and everything that it needs, for pip without a network."""
    folder = cache_folder("wheel", f"dependencies-{python_version}-{machine}")
    for old in folder.glob("onesided-*.whl"):
        old.unlink()
    shutil.copy(built, folder)
    platforms = [w for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux2014", "manylinux_2_17")
                 for w in ("--platform", f"{tag}_{machine}")]  # fmt: skip
    pip_step(
        f"What the wheel needs, for Python {python_version} on {machine}", Path(sys.executable), "download", "-q", "--only-binary=:all:",
        *platforms, "--python-version", python_version, "-d", folder, built, *more,
    )  # fmt: skip
    return folder


def in_root(name: str, wheels: Path, tests: Sequence[str], folders: Mapping[Path, str], more: str = "") -> Tally:
    """Installs the wheel, and `more`, in a copy of the root folder `name` and runs the tests there."""
    show = {wheels: _WHEELS, ROOT / "tests": _TESTS, **folders}
    settings = {"TESTS": "'" + " ".join(f"{_TESTS}/{test}" for test in tests) + "'", "MORE": f"'{more}'"}
    command = ["sh", "-c", _INSTALL, "sh", *folders.values()]
    done = roots.run(name, command, show=show, settings=settings)
    output, _, report = done.stdout.partition(_REPORT)
    print(output[-6000:], done.stderr[-3000:] if done.returncode else "", sep="\n", flush=True)
    runners.REPORTS.mkdir(parents=True, exist_ok=True)
    file = runners.REPORTS / f"wheel-{name}.xml"
    file.write_text(report)
    return tally.from_pytest(file, done.returncode)


def beside_torch_npu(built: Path) -> Tally:
    """On Debian 12, with torch_npu and Ray beside it: a pool, an engine, a transfer."""
    wheels = dependencies(built, "3.11", "x86_64")
    version = versions.find(TORCH_NPU)
    versions.require(version)
    common = versions.cache_folder() / "common-py311" / "lib" / "python3.11" / "site-packages"
    folders = {version.packages: _TORCH, common: _COMMON}
    return in_root("bookworm-amd64", wheels, ["wheel/with_torch_npu"], folders)


def with_python_313(built: Path) -> Tally:
    """On Debian 13, the same file under Python 3.13 and without torch: the core and the engine's tests."""
    wheels = dependencies(built, "3.13", "x86_64", "pytest")
    return in_root("trixie-amd64", wheels, ["wheel/test_bare_wheel.py", "python/test_engine.py"], {}, "pytest")


def run() -> Tally:
    """Builds the wheel and tries it; one failure when there is none."""
    try:
        built = wheel.build("x86_64")
        return beside_torch_npu(built) + with_python_313(built)
    except Problem as problem:
        print(problem)
        return Tally(failed=1)
