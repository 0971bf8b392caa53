"""A document that names a file which is gone misleads. Every link and every path in backticks leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tidy

ROOT = Path(tidy.__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PATH = re.compile(
    r"`((?:src|python|tests|tools|bench|bindings|ascend_sim|cmake|docs|examples|requirements)/[\w./{},-]+)`"
)


def expanded(path: str) -> list[str]:
    """`a.{h,cc}` names two files."""
    match = re.search(r"\{([^}]*)\}", path)
    if not match:
        return [path]
    return [path[: match.start()] + choice + path[match.end() :] for choice in match[1].split(",")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    missing = [link for link in LINK.findall(text) if not (document.parent / link).exists()]
    missing += [path for word in PATH.findall(text) for path in expanded(word) if not (ROOT / path).exists()]
    assert missing == []


def test_readme_and_its_translation_show_the_same_code() -> None:
    def code(name: str) -> list[str]:
        blocks = re.findall(r"```\w+\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
        return [
            line.split("#")[0].rstrip() for block in blocks for line in block.splitlines() if line.split("#")[0].strip()
        ]

    assert code("README.md") == code("README.zh.md")


def test_the_index_knows_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [
        path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md" and path.name not in index
    ] == []


def test_the_tests_that_field_cases_names_exist() -> None:
    text = (ROOT / "docs" / "field_cases.md").read_text()
    suites = "\n".join(path.read_text() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*_test.cc"))
    programs = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    missing = [
        f"{suite}.{test}"
        for suite, test in re.findall(r"`(\w+)\.([A-Z]\w+)`", text)
        if not re.search(rf"TEST(_[FP])?\({suite},\s+{test}\)", suites)
    ]
    program = ""
    for named, test in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", text):
        program = named or program
        if test and f"def {test}(" not in programs.get(program, ""):
            missing.append(f"{program}::{test}")
    assert missing == []
