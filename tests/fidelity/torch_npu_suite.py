#!/usr/bin/env python3
"""An external oracle. torch_npu's own tests of its allocator, streams, events and memory run on the simulated runtime;
the counts say how true the simulation is. Nothing of torch_npu is kept in this project: give the path of a checkout of
https://github.com/Ascend/pytorch.

    tests/fidelity/torch_npu_suite.py CHECKOUT [--preload MODULE_OR_CODE] [--only NAME ...] [--json FILE]

--preload runs in every test process after torch_npu is imported and before its tests: a module's name, or code such as
"import onesided.npu; onesided.npu.install()".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass, field
from pathlib import Path

# File under test/ of the checkout, and how many of its tests must pass (the rest needs hardware that is not simulated,
# see docs/ascend_sim.md).
FLOOR = {
    "test_npu_allocator.py": 24,
    "npu/test_mempool_destructor.py": 2,
    "npu/test_stream.py": 22,
    "npu/test_stream_check.py": 3,
    "npu/test_allocator_envs.py": 6,
    "npu/test_custom_segment_size.py": 1,
    "npu/test_large_segment_size.py": 5,
    "npu/test_per_process_memory_fraction.py": 6,
    "npu/test_sanitizer_record_stream.py": 18,
    "npu/test_memory_viz.py": 4,
    "npu/test_roundup_power2_divisions.py": 1,
    "npu/test_expandable_segments.py": 1,
    "npu/test_allocator_multi_thread_prof.py": 1,
    "npu/test_cpu_fallback_control.py": 7,
    "npu/test_copy.py": 11,
    "npu/test_device.py": 9,
    "npu/test_empty_strided_npu.py": 11,
    "npu/test_npu.py": 60,
    "allocator/test_throw_on_npumalloc_oom.py": 5,
    "allocator/test_pluggable_allocator_extensions.py": 4,
}

# As much as the cards have that these tests were written on; only what is touched costs memory here.
HBM = "64GiB"

_PLUGIN = """\
import os
import torch
import torch_npu
code = os.environ["ONESIDED_FIDELITY_PRELOAD"]
exec(compile(code, "--preload", "exec"), {"__name__": "onesided_fidelity_preload"})
"""


@dataclass
class Outcome:
    """What one file of tests gave."""

    file: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    floor: int = 0
    problem: str | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def short(self) -> bool:
        return self.passed < self.floor

    def line(self) -> str:
        mark = "!!" if self.short else "ok"
        text = (
            f"{mark} {self.file:<52} {self.passed:>3} passed of {self.passed + self.failed:>3}, {self.skipped} skipped"
        )
        text += f" (floor {self.floor})" if self.floor else ""
        return text + (f": {self.problem}" if self.problem else "")


def make_tree(checkout: Path, folder: Path) -> Path:
    """A copy of the tests to run in, with a stand-in for the vendor's stub libraries; the checkout stays untouched."""
    shutil.copytree(checkout / "test", folder / "test", symlinks=True)
    stubs = folder / "third_party" / "acl" / "libs"
    stubs.mkdir(parents=True)
    # Their script compiles empty libraries to link against; ours are there already.
    (stubs / "build_stub.sh").write_text("exit 0\n")
    from onesided import ascend_sim

    for library in ascend_sim.library_folder().glob("lib*.so"):
        (stubs / library.name).symlink_to(library)
    return folder / "test"


def preload_code(text: str | None) -> str | None:
    """Code of --preload: a dotted name is a module to import."""
    if text and all(part.isidentifier() for part in text.split(".")):
        return f"import {text}"
    return text


def run_file(tests: Path, name: str, preload: str | None, timeout_s: int) -> Outcome:
    """Runs one file in a process of its own, under `onesided sim`."""
    outcome = Outcome(name, floor=FLOOR.get(name, 0))
    if not (tests / name).exists():
        outcome.problem = "not in this checkout"
        return outcome
    report = tests / "report.xml"
    report.unlink(missing_ok=True)
    settings = dict(os.environ)
    command = [
        sys.executable, "-m", "onesided", "sim", "--hbm", HBM, "--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "--rootdir", str(tests), f"--junitxml={report}",
    ]  # fmt: skip
    if preload:
        (tests / "onesided_fidelity_plugin.py").write_text(_PLUGIN)
        settings["ONESIDED_FIDELITY_PRELOAD"] = preload
        command += ["-p", "onesided_fidelity_plugin"]
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            [*command, str(tests / name)],
            cwd=tests,
            env=settings,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        outcome.problem = f"no end after {timeout_s} s"
        return outcome
    if not report.exists():
        outcome.problem = f"no report, exit status {done.returncode}: {(done.stdout + done.stderr)[-300:]}"
        return outcome
    count(outcome, report)
    return outcome


def count(outcome: Outcome, report: Path) -> None:
    for case in ElementTree.parse(report).iter("testcase"):
        broken = next((child for child in case if child.tag in ("failure", "error")), None)
        if broken is not None:
            outcome.failed += 1
            words = (broken.get("message") or "").strip().splitlines()
            outcome.failures.append(f"{case.get('name')}: {words[0][:200] if words else broken.tag}")
        elif any(child.tag == "skipped" for child in case):
            outcome.skipped += 1
        else:
            outcome.passed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of torch_npu")
    parser.add_argument("--preload", help="module or code to run in every test process")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="files that contain one of these names")
    parser.add_argument("--also", nargs="+", metavar="FILE", default=[], help="more files under test/")
    parser.add_argument("--json", type=Path, help="where to write the counts")
    parser.add_argument(
        "--timeout", type=int, default=900, help="seconds for one file (default 900; an idle machine needs 60)"
    )
    options = parser.parse_args()
    if not (options.checkout / "test").is_dir():
        parser.error(f"{options.checkout} has no folder test/: it is not a checkout of torch_npu")
    names = [name for name in FLOOR if not options.only or any(word in name for word in options.only)] + options.also
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="onesided-fidelity-") as folder:
        tests = make_tree(options.checkout, Path(folder))
        for name in names:
            outcome = run_file(tests, name, preload_code(options.preload), options.timeout)
            outcomes.append(outcome)
            print(outcome.line(), flush=True)
            for failure in outcome.failures:
                print(f"      {failure}", flush=True)
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print(f"{passed} passed, {failed} failed, {sum(o.skipped for o in outcomes)} skipped in {len(outcomes)} files")
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    return 1 if any(outcome.short for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
