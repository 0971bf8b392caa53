"""./do matrix: what holds with each torch_npu, on its real wheels over the simulated runtime.

Each check is a program of its own in the version's environment. What a row does not say was not run: there is no default
that means success. Not run yet: torch_npu's own tests, the demo, Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import package, versions
from .lock import CheckoutLock
from .paths import BUILD, PYTHON, ROOT, tool
from .steps import Step, run_step
from .versions import Version

_PRESET = "dev"
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")
_DECORATOR = "import onesided.npu; onesided.npu.install(); assert onesided.npu.installed(); onesided.npu.uninstall()"


def _run(version: Version, *arguments: str, seconds: int = 900, sim: bool = True) -> tuple[int, str]:
    """A program in the version's environment, under the simulated runtime; its exit status and output."""
    python = str(version.python)
    command = [python, "-m", "onesided", "sim", "--", python] if sim else [python]
    settings = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")}
    settings["PYTHONPATH"] = f"{ROOT / 'python'}{os.pathsep}{ROOT / 'tools'}"
    try:
        done = subprocess.run(
            [*command, "-W", "ignore", *arguments], cwd=ROOT, env=settings, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"no end after {seconds} s"
    return done.returncode, done.stdout + done.stderr


def _last_words(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("frame #")]
    return lines[-1][:300] if lines else "it said nothing"


def _holds(version: Version, *arguments: str) -> bool | str:
    """True, or why not."""
    code, output = _run(version, *arguments)
    return True if code == 0 else _last_words(output)


def _pool_tests(version: Version, short: bool) -> list[int]:
    """[passed, failed] of the tests of aligned pools."""
    chosen = ["-k", "test_forms or test_memory"] if short else []
    _, output = _run(
        version,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/python/pool/test_npu_pools.py",
        *chosen,
        sim=False,
    )
    counts = {name: int(number) for number, name in _COUNTS.findall(_last_words(output))}
    return [counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)]


def row(version: Version, short: bool) -> dict[str, Any]:
    """What holds with one version."""
    code, output = _run(version, "-c", "import platform; print(platform.python_version())", sim=False)
    made: dict[str, Any] = {
        "torch_npu": version.torch_npu, "torch": version.torch, "python": output.strip() if code == 0 else None,
        "machine": platform.machine(),
    }  # fmt: skip
    made["decorator"] = _holds(version, "-c", _DECORATOR)
    if made["decorator"] is True:
        made["read"] = _holds(version, "tests/process/torch_npu_read.py")
        made["pool_tests"] = _pool_tests(version, short)
    return made


def passed(one: dict[str, Any]) -> bool:
    """Whether all that was run for a row holds."""
    counts = one.get("pool_tests", [0, 1])
    return one["decorator"] is True and one.get("read") is True and counts[0] > 0 and counts[1] == 0


def line(one: dict[str, Any]) -> str:
    cells = [f"{name}: {one[name]}" for name in ("decorator", "read", "pool_tests") if name in one]
    return (
        f"{'ok' if passed(one) else '!!'} torch_npu {one['torch_npu']:<13} torch {one['torch']:<7} {', '.join(cells)}"
    )


def build(chosen: Sequence[Version]) -> None:
    """Builds the package of this checkout in place, for all chosen versions."""
    configure = [tool("cmake"), "--preset", _PRESET, f"-DONESIDED_TORCH_FOLDERS={versions.folders(tuple(chosen))}",
                 f"-DPython_EXECUTABLE={PYTHON}"]  # fmt: skip
    environment = package.build_environment()
    run_step("Configure for all versions", configure, failure=package.why_build_failed, env=environment)
    probes = [f"allocator_probe_{one.replace('.', '_')}" for one in sorted({version.decorator for version in chosen})]
    command = [tool("cmake"), "--build", str(BUILD / _PRESET), "--target", "onesided_package", *probes]
    run_step("Build for all versions", command, failure=package.why_build_failed, env=environment)


def write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    """One row a line; rows of versions that were not run now stay as they were."""
    old = {one["torch_npu"]: one for one in json.loads(file.read_text())} if file.exists() else {}
    old.update({one["torch_npu"]: one for one in rows})
    order = [version.torch_npu for version in versions.VERSIONS]
    lines = [json.dumps(old[name]) for name in sorted(old, key=order.index)]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do matrix", description="what holds with each version of torch_npu")
    parser.add_argument("--only", metavar="V", action="append", help="one version of torch_npu; may be repeated")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
    parser.add_argument("--short", action="store_true", help="of the pool tests only what CI runs")
    parser.add_argument("--folders", action="store_true", help="print what ONESIDED_TORCH_FOLDERS takes, and end")
    parser.add_argument("--no-build", action="store_true", help="this checkout is built in place for the versions")
    options = parser.parse_args(arguments)
    if options.folders:
        print(versions.folders())
        return 0
    chosen = [versions.find(name) for name in options.only] if options.only else list(versions.VERSIONS)
    with CheckoutLock() as lock:
        for version in chosen:
            versions.require(version)
        if not options.no_build:
            from .__main__ import set_up

            set_up(lock, "test")
            build(chosen)
        rows = []
        for version in chosen:
            with Step(f"torch_npu {version.torch_npu}"):
                rows.append(row(version, options.short))
            print(line(rows[-1]), flush=True)
    if options.json:
        write(options.json, rows)
    failed = [one["torch_npu"] for one in rows if not passed(one)]
    print(f"{len(rows) - len(failed)} versions passed, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0
