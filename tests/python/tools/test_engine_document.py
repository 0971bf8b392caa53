"""docs/engine.md against the engine: its example runs, its tables name what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import onesided
import tidy
from onesided.cli import doctor
from onesided.engine import known_transports

ROOT = Path(tidy.__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "engine.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def first_column(title: str) -> list[str]:
    return re.findall(r"^\| `([^`]*)`", section(title), re.MULTILINE)


def test_the_example_reads_from_another_process():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "two_processes.py")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "COMPLETED 64 MiB over ['shm']\n"


def known_names(call, *arguments) -> list[str]:
    with pytest.raises(onesided.EngineError) as caught:
        call(*arguments)
    return caught.value.text.split("known: ")[1].split(", ")


def test_the_options_are_those_that_there_are():
    assert sorted(first_column("Options")) == sorted(known_names(onesided.Engine, "127.0.0.1:0", {"colour": "blue"}))


def test_the_capabilities_are_those_that_there_are():
    with onesided.Engine("127.0.0.1:0") as engine:
        named = re.findall(r"`([A-Z_]+)`", section("Capabilities"))
        assert sorted(named) == sorted(known_names(engine.get_capability, "SPEED"))


def test_the_transports_are_those_that_there_are():
    assert sorted(first_column("Transports")) == sorted(["self", *known_transports()])


def test_every_verb_of_the_engine_is_there_and_says_what_it_does():
    operations = [name for name in vars(onesided.Engine) if not name.startswith("_")]
    undocumented = [name for name in operations if not (getattr(onesided.Engine, name).__doc__ or "").strip()]
    assert undocumented == []
    assert [name for name in operations if name not in section("Operations") and name != "id"] == []


def test_options_of_other_types_are_refused_in_words():
    with pytest.raises(onesided.EngineError, match="option 'worker_threads': 4: names and values are strings, \"4\""):
        onesided.Engine("127.0.0.1:0", {"worker_threads": 4})


def test_the_doctor_says_which_congestion_control_the_engine_uses():
    said = next(finding for finding in doctor.system() if finding.name == "TCP congestion control").text
    with onesided.Engine("127.0.0.1:0", {"transports": "tcp"}) as engine:
        used = re.search(r"congestion=(\w+)", engine.stats()["transports"]["tcp"])
    assert used is None or used[1] == said.split()[0]
