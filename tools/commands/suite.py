"""One command runs all that CI runs, and its last line says how it went."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

from . import lint, package, tally
from .paths import BUILD, PYTHON, tool
from .program import run_program
from .tally import Tally

REPORTS = BUILD / "reports"


def _heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


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


def run_lint(deep: bool = False) -> Tally:
    outcomes = [passed for _, passed in lint.run(deep)]
    return Tally(passed=sum(outcomes), failed=len(outcomes) - sum(outcomes))


def report(parts: Sequence[tuple[str, Tally]]) -> int:
    """Prints one line a suite and the sum; the exit code."""
    _heading("Result")
    for name, part in parts:
        print(f"  {name:<28} {part.line()}")
    total = sum((part for _, part in parts), Tally())
    print(total.line(), flush=True)
    return 1 if total.failed else 0


def run(everything: bool) -> int:
    """The suite of CI; `everything` adds what is too slow for it."""
    parts: list[tuple[str, Tally]] = []

    def part(name: str, outcome: Tally) -> None:
        parts.append((name, outcome))

    _heading("Linters")
    part("linters", run_lint(deep=everything))
    _heading("C++ tests (ctest)")
    part("C++ tests", run_ctest(package.PRESET))
    _heading("Python and process tests (pytest)")
    part("Python and process tests", run_pytest())
    from . import frameworks

    _heading("Frameworks (vLLM, unmodified)")
    part("frameworks", frameworks.run_all() if everything else frameworks.run_ci())
    if everything:
        from . import slow

        for name, runner in slow.SUITES:
            _heading(name)
            part(name, runner())
    return report(parts)
