"""The suites that are too slow for CI and must pass before a release: ./do test --all."""

from __future__ import annotations

from collections.abc import Callable

from . import apt, fuzz, package, runners, wheel
from .paths import BUILD, ROOT, tool
from .problem import Problem
from .steps import run_step
from .tally import Tally

_FUZZ_SECONDS = 60
_MACHINE_AARCH64 = 183  # e_machine in an ELF file's header


def _asan() -> Tally:
    return runners.run_ctest("asan-ubsan", environment={"UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"})


def _tsan() -> Tally:
    options = f"halt_on_error=1:second_deadlock_stack=1:suppressions={ROOT / 'tests' / 'tsan.supp'}"
    return runners.run_ctest("tsan", environment={"TSAN_OPTIONS": options})


def _fuzz() -> Tally:
    return fuzz.run(seconds=_FUZZ_SECONDS)


def _aarch64() -> Tally:
    """Compiles every module for aarch64; nothing is linked or run."""
    apt.require(apt.CROSS)
    tree = BUILD / "aarch64"
    configure = [
        tool("cmake"), "-S", str(ROOT), "-B", str(tree), "-G", "Ninja",
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'aarch64.cmake'}", "-DONESIDED_BUILD_PYTHON=OFF",
    ]  # fmt: skip
    environment = package.build_environment()
    try:
        run_step("Configure aarch64", configure, failure=package.why_build_failed, env=environment)
        run_step(
            "Compile for aarch64", [tool("cmake"), "--build", str(tree), "--target", "onesided_node"],
            failure=package.why_build_failed, env=environment,
        )  # fmt: skip
    except Problem as problem:
        print(problem)
        return Tally(failed=1)
    objects = list(tree.rglob("*.o"))
    wrong = [path for path in objects if int.from_bytes(path.read_bytes()[18:20], "little") != _MACHINE_AARCH64]
    return Tally(passed=1) if objects and not wrong else Tally(failed=1)


SUITES: tuple[tuple[str, Callable[[], Tally]], ...] = (
    ("ASan + UBSan", _asan),
    ("TSan", _tsan),
    ("Fuzzers", _fuzz),
    ("aarch64 cross build", _aarch64),
    ("The wheel, without torch", wheel.run),
)
