"""./do COMMAND sets up what the command needs, runs it, and ends with one clear sentence where it cannot."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from . import apt, environment, frameworks, fuzz, lint, matrix, package, runners, suite, torch_wheels, wheel
from .lock import CheckoutLock
from .paths import BUILD, LOCK, LOG, PYTHON, ROOT, VENV
from .problem import Problem
from .program import run_program

COMMANDS = {
    "demo": "show the whole path: the problem, the cure, weights between two Ray actors",
    "test": "run what CI runs; --all adds what is too slow for CI",
    "bench": "measure, side by side with peers: alloc | transfer | ray | weights",
    "lint": "run the linters; --deep adds clang's thread-safety analysis and clang-tidy",
    "fuzz": "run the fuzzers; --seconds N each (60)",
    "matrix": "try each version of torch_npu people run, on its real wheels (gigabytes in the cache)",
    "doctor": "say what this machine can do, and what to do about the rest",
    "wheel": "build the wheels that run on every Linux with glibc 2.28, for x86_64 and aarch64",
    "smoke-npu": "on a machine with NPUs: try every step there and write what to report",
    "clean": "delete .venv, build/ and all that ./do made here",
}


def set_up(lock: CheckoutLock, *groups: str) -> None:
    """Everything up to an installed onesided. Seconds when nothing has changed."""
    apt.require()
    environment.require(lock, ("run", "build", *groups))
    package.require(lock)
    lock.share()


def demo(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do demo", description=COMMANDS["demo"])
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.parse_args(arguments)
    source = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    check = subprocess.run([sys.executable, "-m", "onesided.cli.preflight"], env=source, check=False)
    if check.returncode != 0:
        return check.returncode
    with CheckoutLock() as lock:
        set_up(lock)
        return run_program([str(PYTHON), "-m", "onesided", "demo", *arguments])


def test(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do test", description=COMMANDS["test"])
    parser.add_argument("--all", action="store_true", help="also sanitizers, fuzzing, aarch64, the bare wheel")
    parser.add_argument("--frameworks", action="store_true", help="only the frameworks' tests, all of them")
    parser.add_argument("pytest_arguments", nargs="*", metavar="-- PYTEST", help="only pytest, with these arguments")
    options = parser.parse_args(arguments)
    with CheckoutLock() as lock:
        set_up(lock, "test")
        if options.frameworks:
            return suite.report(
                [(one.name, frameworks.run(one, options.pytest_arguments)) for one in frameworks.FRAMEWORKS]
            )
        if options.pytest_arguments:
            return suite.report([("Python and process tests", runners.run_pytest(options.pytest_arguments))])
        return suite.run(options.all)


def bench(arguments: Sequence[str]) -> int:
    programs = sorted(path.parent.name for path in (ROOT / "bench").glob("*/__main__.py"))
    if not arguments or arguments[0] not in programs:
        print(f"usage: ./do bench {'|'.join(programs)} [--json FILE] [...]")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    with CheckoutLock() as lock:
        set_up(lock, "test", "bench")
        package.build(package.PRESET, title="Build the benchmarks")
        return run_program([str(PYTHON), "-m", f"bench.{arguments[0]}", *arguments[1:]])


def run_lint(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do lint", description=COMMANDS["lint"])
    parser.add_argument(
        "--deep", action="store_true", help="also clang's thread-safety analysis and clang-tidy, minutes"
    )
    options = parser.parse_args(arguments)
    with CheckoutLock() as lock:
        if options.deep:
            set_up(lock, "test")
        environment.require(lock, ("run", "build", "test"))
        lock.share()
        results = lint.run(options.deep)
    failed = [name for name, passed in results if not passed]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def run_fuzz(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do fuzz", description=COMMANDS["fuzz"])
    parser.add_argument("--seconds", type=int, default=60, help="time for each fuzzer (60)")
    parser.add_argument("--runs", type=int, help="a fixed number of inputs for each instead")
    options = parser.parse_args(arguments)
    with CheckoutLock() as lock:
        apt.require(apt.FUZZ)
        environment.require(lock, ("run", "build"))
        lock.share()
        outcome = fuzz.run(seconds=options.seconds, runs=options.runs)
    print(outcome.line())
    return 1 if outcome.failed else 0


def build_wheels(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./do wheel", description=COMMANDS["wheel"])
    parser.add_argument("--machine", choices=wheel.MACHINES, action="append", help="only this processor (both)")
    parser.add_argument(
        "--torch-npu", choices=torch_wheels.VERSIONS, action="append", metavar="VERSION",
        help=f"only the decorator of this version (all: {', '.join(torch_wheels.VERSIONS)})",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    with CheckoutLock() as lock:
        apt.require()
        environment.require(lock, ("run", "build"))
        lock.share()
        for machine in options.machine or wheel.MACHINES:
            built = wheel.build(machine, options.torch_npu or tuple(torch_wheels.VERSIONS))
            print(f"{built.relative_to(ROOT)}  {built.stat().st_size / 1e6:.1f} MB")
    return 0


def doctor(arguments: Sequence[str]) -> int:
    """Needs nothing set up: what is not there yet is part of its answer."""
    if PYTHON.exists():
        command = [str(PYTHON), "-c", "import onesided"]
        if (
            subprocess.run(command, env=environment.child_environment(), check=False, capture_output=True).returncode
            == 0
        ):
            return run_program([str(PYTHON), "-m", "onesided.cli.doctor", *arguments])
    return run_program(
        [sys.executable, "-m", "onesided.cli.doctor", *arguments], settings={"PYTHONPATH": str(ROOT / "python")}
    )


def smoke_npu(arguments: Sequence[str]) -> int:
    with CheckoutLock() as lock:
        set_up(lock)
        return run_program([str(PYTHON), str(ROOT / "tools" / "smoke_npu.py"), *arguments])


def clean(arguments: Sequence[str]) -> int:
    argparse.ArgumentParser(prog="./do clean", description=COMMANDS["clean"]).parse_args(arguments)
    with CheckoutLock() as lock:
        lock.exclude()
        for folder in (VENV, BUILD):
            shutil.rmtree(folder, ignore_errors=True)
        for cache in (".pytest_cache", ".mypy_cache", ".ruff_cache"):
            shutil.rmtree(ROOT / cache, ignore_errors=True)
        LOG.unlink(missing_ok=True)
        LOCK.unlink(missing_ok=True)
    print("clean: .venv, build/ and the caches are gone")
    return 0


RUN: dict[str, Callable[[Sequence[str]], int]] = {
    "demo": demo, "test": test, "bench": bench, "lint": run_lint, "fuzz": run_fuzz, "doctor": doctor,
    "wheel": build_wheels, "matrix": matrix.main, "smoke-npu": smoke_npu, "clean": clean,
}  # fmt: skip


def usage() -> str:
    lines = [f"  ./do {command:<11}{text}" for command, text in COMMANDS.items()]
    return "\n".join(["Each sets up all it needs, then runs. `./do COMMAND --help` says more.", *lines])


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] not in RUN:
        print(f"do: there is no command {arguments[0]!r}.\n{usage()}", file=sys.stderr)
        return 2

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        return RUN[arguments[0]](arguments[1:])
    except Problem as problem:
        print(f"do: {problem}", file=sys.stderr)
        return problem.code
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"do: {error.strerror or error}{where}; fix that, then run this again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndo: interrupted; nothing half-built counts as built, the next run goes on from here.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
