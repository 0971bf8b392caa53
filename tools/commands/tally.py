"""The last line of ./do test must be true. It is added up from the runners' own reports, and a runner that
crashed, or ran nothing, counts as a failure."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tally:
    """Counts of one suite. A value."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed" + (f", {self.skipped} skipped" if self.skipped else "")


def _cases(report: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def _count(cases: list[ElementTree.Element]) -> Tally:
    failed = skipped = 0
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
    return Tally(len(cases) - failed - skipped, failed, skipped)


def from_pytest(report: Path, exit_code: int) -> Tally:
    """pytest's report. An exit code that its failures do not explain is one failure more."""
    tally = _count(_cases(report))
    explained = (exit_code == 0 and tally.passed > 0) or (exit_code == 1 and tally.failed > 0)
    return tally if explained else tally + Tally(failed=1)


def from_ctest(report: Path, gtest_reports: Path, exit_code: int) -> Tally:
    """ctest's report, with each GoogleTest program's entry replaced by its own report of its cases.

    A program that ctest calls failed counts at least one failure, whatever its own report says: it may have crashed
    before or after writing it.
    """
    entries = _cases(report)
    total = Tally()
    for entry in entries:
        one = _count([entry])
        cases = _cases(gtest_reports / f"{entry.get('name')}.xml")
        if cases:
            inner = _count(cases)
            total += inner if not one.failed or inner.failed else inner + Tally(failed=1)
        else:
            total += one
    if not entries or (exit_code != 0 and total.failed == 0):
        total += Tally(failed=1)
    return total
