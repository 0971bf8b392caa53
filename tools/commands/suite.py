"""The test suite of CI: linters, C++ tests and Python tests. The last line of the output is the total."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import apt, frameworks, lint, package, slow
from .runners import run_ctest, run_pytest
from .tally import Tally


def _heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def run_lint(deep: bool = False) -> Tally:
    outcomes = [passed for _, passed in lint.run(deep)]
    return Tally(passed=sum(outcomes), failed=len(outcomes) - sum(outcomes))


def report(parts: Sequence[tuple[str, Tally]]) -> int:
    """Prints one line per suite and the total; returns the exit code."""
    _heading("Result")
    for name, part in parts:
        print(f"  {name:<28} {part.line()}")
    total = sum((part for _, part in parts), Tally())
    print(total.line(), flush=True)
    return 1 if total.failed else 0


def run(everything: bool) -> int:
    """Runs the suite of CI; `everything` adds the suites that are too slow for it. Returns the exit code."""
    parts: list[tuple[str, Tally]] = []

    def part(name: str, outcome: Tally) -> None:
        parts.append((name, outcome))

    if everything or os.environ.get("CI"):
        apt.require(apt.C_INTERFACE)
    _heading("Linters")
    part("linters", run_lint(deep=everything))
    _heading("C++ tests (ctest)")
    part("C++ tests", run_ctest(package.PRESET))
    _heading("Python and process tests (pytest)")
    part("Python and process tests", run_pytest())
    _heading("Frameworks (unmodified)")
    if everything or os.environ.get("CI"):
        part("frameworks", frameworks.run_all() if everything else frameworks.run_ci())
    else:
        print("  not run: their environments are large downloads; ./do test --frameworks makes and runs them")
    if everything:
        for name, runner in slow.SUITES:
            _heading(name)
            part(name, runner())
    return report(parts)
