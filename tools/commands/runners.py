"""Runs ctest and pytest and counts the results; used by every suite of tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from . import package, tally
from .paths import BUILD, PYTHON, tool
from .program import run_program
from .tally import Tally

REPORTS = BUILD / "reports"


def run_ctest(preset: str, *, environment: dict[str, str] | None = None) -> Tally:
    """Builds a preset's tests and runs them."""
    package.build(preset, title=f"Build the tests ({preset})")
    reports = REPORTS / preset
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    summary = reports / "ctest-summary.xml"
    jobs = len(os.sched_getaffinity(0))
    command = [
        tool("ctest"), "--test-dir", str(BUILD / preset), "--output-on-failure", "-j", str(jobs), "--output-junit",
        str(summary),
    ]  # fmt: skip
    code = run_program(command, settings={"GTEST_OUTPUT": f"xml:{reports}/", **(environment or {})})
    return tally.from_ctest(summary, reports, code)


def run_pytest(
    arguments: Sequence[str] = (),
    *,
    name: str = "pytest",
    python: str = str(PYTHON),
    settings: Mapping[str, str] | None = None,
) -> Tally:
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", f"--junitxml={report}", *arguments]
    code = run_program(command, settings=settings)
    return tally.from_pytest(report, code)
