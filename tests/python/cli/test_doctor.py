"""The doctor is asked where things are broken; it must not break there itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onesided.ascend_sim import real_cann
from onesided.cli import doctor, machine, preflight


def fake_runtime(folder: Path) -> Path:
    folder.mkdir(parents=True)
    library = folder / real_cann.RUNTIME_NAME
    library.touch()
    return library


@pytest.fixture
def no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(real_cann, "loaded_runtimes", lambda: [])
    monkeypatch.setattr(real_cann, "_linker_cache", lambda: iter(()))


def test_no_runtime_is_found_where_none_is(no_runtime: None) -> None:
    assert machine.runtime().kind == "none"


@pytest.mark.parametrize(("variable", "below"), [("LD_LIBRARY_PATH", ""), ("ASCEND_HOME_PATH", "lib64")])
def test_a_real_runtime_is_recognised_and_stops_the_demo(
    no_runtime: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    library = fake_runtime(tmp_path / "cann" / below)
    monkeypatch.setenv(variable, str(tmp_path / "cann"))
    assert machine.runtime() == machine.Runtime("real", str(library))
    assert "real Ascend runtime" in (preflight.obstacle() or "")


def test_ours_is_simulated_and_a_real_one_beside_it_still_counts_as_real(
    no_runtime: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = fake_runtime(tmp_path / "onesided" / "ascend_sim" / "lib").parent
    monkeypatch.setenv("LD_LIBRARY_PATH", str(ours))
    assert machine.runtime().kind == "simulated"
    theirs = fake_runtime(tmp_path / "cann" / "lib64").parent
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{ours}:{theirs}")
    assert machine.runtime().kind == "real"


def test_what_is_too_small_stops_the_demo_in_words(no_runtime: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "shared_memory_free", lambda: 64 << 20)
    assert "/dev/shm has 0.1 GB free" in (preflight.obstacle() or "")
    monkeypatch.setattr(machine, "shared_memory_free", lambda: 64 << 30)
    monkeypatch.setattr(machine, "meminfo_bytes", lambda field: 1 << 30)
    assert "of memory are available" in (preflight.obstacle() or "")
    monkeypatch.setattr(machine, "meminfo_bytes", lambda field: 1 << 40)
    assert preflight.obstacle() is None
    monkeypatch.setattr(machine, "memfd_error", lambda: "memfd_create: Operation not permitted")
    assert "memfd_create: Operation not permitted" in (preflight.obstacle() or "")


def test_every_finding_says_what_to_do_or_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "process_read_error", lambda: "process_vm_readv: Operation not permitted")
    findings = doctor.report()
    assert {finding.topic for finding in findings} == {"device", "imports", "transports", "system", "versions"}
    for finding in findings:
        assert finding.state == doctor.OK or finding.advice, finding
    cma = next(finding for finding in findings if finding.name == "cma")
    assert cma.state == doctor.LIMITED and "Operation not permitted" in cma.text


def test_a_process_may_be_read_only_as_the_kernel_says() -> None:
    if machine.ptrace_scope() == 0:
        assert machine.process_read_error() is None
    else:
        assert machine.process_read_error() is not None


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device_runtime"] in ("real", "simulated", "none")
    assert {finding["name"] for finding in report["findings"]} >= {"shm", "cma", "tcp", "ptrace scope", "torch"}


def test_it_runs_from_bare_sources_without_torch_rich_or_the_core(tmp_path: Path) -> None:
    """A copy of the sources, and a Python with none of this environment's packages."""
    source = Path(__file__).resolve().parents[3] / "python" / "onesided"
    copy = tmp_path / "onesided"
    for path in [*source.glob("*.py"), *source.glob("cli/*.py"), *source.glob("ascend_sim/*.py"), *source.glob("compat/*.py")]:
        target = copy / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    done = subprocess.run(
        [sys.executable, "-S", "-m", "onesided.cli.doctor"], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not built" in done.stdout and "not installed" in done.stdout
