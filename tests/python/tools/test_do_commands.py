"""What ./do promises about stamps, locks and sums holds also when a run is cut short."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import environment, lock, package, stamps, tally
from commands.problem import Problem
from commands.steps import run_step
from commands.tally import Tally

ROOT = Path(package.__file__).resolve().parents[2]


def test_a_stamp_matches_only_what_it_was_written_for(tmp_path: Path) -> None:
    stamp = stamps.Stamp("step", tmp_path / "stamps")
    assert not stamp.matches("one")
    stamp.write("one")
    assert stamp.matches("one") and not stamp.matches("two")
    stamp.clear()
    assert not stamp.matches("one")


def test_a_digest_sees_contents_names_and_moves_but_not_built_things(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text("int a;")
    before = stamps.digest(paths=[tmp_path])
    (tmp_path / "core.so").write_text("built")
    (tmp_path / "libonesided.so.1").write_text("built")
    assert stamps.digest(paths=[tmp_path]) == before
    (tmp_path / "a.cc").write_text("int b;")
    assert stamps.digest(paths=[tmp_path]) != before
    (tmp_path / "a.cc").rename(tmp_path / "b.cc")
    (tmp_path / "b.cc").write_text("int a;")
    assert stamps.digest(paths=[tmp_path]) != before


HOLD = """
import sys
from pathlib import Path
from commands import lock
lock.LOCK = Path(sys.argv[1])
with lock.CheckoutLock() as held:
    held.exclude()
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    environment = {"PYTHONPATH": str(ROOT / "tools")}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_second_set_up_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    with hold(tmp_path / "lock") as first:
        assert first.stdin and first.stdout
        assert first.stdout.readline() == "held\n"
        with hold(tmp_path / "lock") as second:
            assert second.stdin and second.stdout
            assert "waiting for it" in second.stdout.readline()
            first.kill()  # a holder that is killed leaves nothing to clean
            assert second.stdout.readline() == "held\n"
            second.stdin.close()


def test_a_lock_on_a_deleted_file_is_taken_again_on_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock")
    with lock.CheckoutLock() as held:
        (tmp_path / "lock").unlink()
        held.exclude()
        assert (tmp_path / "lock").exists()


def test_a_checkout_of_somebody_else_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", str(tmp_path / "lock"))

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(Problem, match="belongs to another user"), lock.CheckoutLock():
        pass


def test_a_failed_step_ends_in_one_sentence_and_leaves_its_output_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ROOT / ".do.log"
    with pytest.raises(Problem, match="it said: no such thing"):
        run_step("Try", ["sh", "-c", "echo no such thing; exit 3"], failure=lambda output: f"it said: {output}")
    assert "no such thing" in log.read_text(errors="replace")


STEP = """
import sys
from commands.steps import run_step
run_step("Wait", ["sh", "-c", f"sleep 600 & echo $! > {sys.argv[1]}; wait"], failure=str)
"""


def test_an_interrupted_step_takes_all_it_started_with_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pid"
    os.mkfifo(pipe)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    with subprocess.Popen(
        [sys.executable, "-c", STEP, str(pipe)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as step:
        grandchild = os.pidfd_open(int(pipe.read_text()))
        step.send_signal(signal.SIGINT)
        assert step.wait(timeout=30) != 0
    ended, _, _ = select.select([grandchild], [], [], 30)
    os.close(grandchild)
    assert ended


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("... NewConnectionError: [Errno 111] Connection refused", "no network"),
        ("ERROR: Could not find a version that satisfies torch==2.13.0 (from versions: none)", "no network"),
        ("Temporary failure in name resolution", "no network"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: No matching distribution found for torch==2.13.0", "No matching distribution found for torch"),
    ],
)
def test_pip_failures_have_a_cause(output: str, words: str) -> None:
    assert words in environment.why_pip_failed(output)


def test_build_failures_have_a_cause() -> None:
    assert "no C++ compiler" in package.why_build_failed("CMake Error: No CMAKE_CXX_COMPILER could be found.")
    assert "fd.cc:3:1: error: oops" in package.why_build_failed("[1/9] x\n/a/fd.cc:3:1: error: oops\n")
    assert "spdlog" in package.why_build_failed("CMake Error at CMakeLists.txt:26: Could not find spdlog\n")


def write_report(path: Path, *cases: str) -> Path:
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


PASSED = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure/></testcase>'
SKIPPED = '<testcase name="c"><skipped/></testcase>'


def test_pytest_reports_are_added_up(tmp_path: Path) -> None:
    report = write_report(tmp_path / "p.xml", PASSED, PASSED, FAILED, SKIPPED)
    assert tally.from_pytest(report, 1) == Tally(2, 1, 1)


@pytest.mark.parametrize("code", [2, 3, 4, 5, 139])
def test_a_pytest_that_did_not_finish_is_a_failure(tmp_path: Path, code: int) -> None:
    assert tally.from_pytest(write_report(tmp_path / "p.xml", PASSED), code).failed == 1
    assert tally.from_pytest(tmp_path / "missing.xml", 0).failed == 1


def test_ctest_counts_the_cases_of_each_program(tmp_path: Path) -> None:
    write_report(tmp_path / "one.xml", PASSED, PASSED, SKIPPED)
    summary = write_report(tmp_path / "s.xml", '<testcase name="one"/>', '<testcase name="plain"/>')
    assert tally.from_ctest(summary, tmp_path, 0) == Tally(3, 0, 1)


def test_a_program_that_crashed_is_a_failure_with_and_without_its_own_report(tmp_path: Path) -> None:
    write_report(tmp_path / "one.xml", PASSED)
    summary = write_report(
        tmp_path / "s.xml",
        '<testcase name="one"><failure/></testcase>',
        '<testcase name="two"><failure/></testcase>',
    )
    assert tally.from_ctest(summary, tmp_path, 8) == Tally(1, 2, 0)
    assert tally.from_ctest(tmp_path / "missing.xml", tmp_path, 0).failed == 1
