"""The suites that are too slow for CI and must pass before a release: ./do test --all."""

from __future__ import annotations

from collections.abc import Callable

from . import aarch64, bare_wheel, fuzz, runners, weak_memory, wheel_install
from .paths import ROOT
from .tally import Tally

_FUZZ_SECONDS = 60


def _asan() -> Tally:
    return runners.run_ctest("asan-ubsan", environment={"UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"})


def _tsan() -> Tally:
    options = f"halt_on_error=1:second_deadlock_stack=1:suppressions={ROOT / 'tests' / 'tsan.supp'}"
    return runners.run_ctest("tsan", environment={"TSAN_OPTIONS": options})


def _fuzz() -> Tally:
    return fuzz.run(seconds=_FUZZ_SECONDS)


SUITES: tuple[tuple[str, Callable[[], Tally]], ...] = (
    ("ASan + UBSan", _asan),
    ("TSan", _tsan),
    ("Fuzzers", _fuzz),
    ("Weak memory models", weak_memory.run),
    ("The wheel, without torch", bare_wheel.run),
    ("The wheel, on an empty system", wheel_install.run),
    ("aarch64 under qemu", aarch64.run),
)
