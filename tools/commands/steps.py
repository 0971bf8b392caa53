"""A set-up of minutes says what it is doing: one live line on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from .paths import LOG, ROOT
from .problem import Problem

_BLUE, _GREEN, _RED, _DIM, _OFF = "\033[34m", "\033[32m", "\033[31m", "\033[2m", "\033[0m"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_COUNT = re.compile(r"^\[(\d+)/(\d+)\]")
_QUIET_SECONDS = 30  # without a terminal, a sign of life this often


def on_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and "CI" not in os.environ


class Step:
    """One thing being done, shown while it runs. Confined to the thread that runs it, but for the drawing thread."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._began = time.monotonic()
        self._note = ""
        self._live = on_terminal()
        self._stop = threading.Event()
        self._drawer = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Step:
        if not self._live:
            print(f"  .. {self._title}", flush=True)
        self._drawer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._drawer.join()
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if self._live:
            mark = f"{_GREEN}✓{_OFF}" if kind is None else f"{_RED}✗{_OFF}"
            print(f"\r\033[K  {mark} {self._title} {_DIM}{seconds}{_OFF}", flush=True)
        else:
            print(f"  {'ok' if kind is None else '!!'} {self._title} ({seconds})", flush=True)

    def note(self, text: str) -> None:
        """What the step is at now: the last line of its output."""
        self._note = text

    def _draw(self) -> None:
        for turn in range(1 << 30):
            if self._stop.wait(0.12 if self._live else _QUIET_SECONDS):
                return
            seconds = f"{time.monotonic() - self._began:.0f} s"
            if self._live:
                width = os.get_terminal_size().columns - len(self._title) - len(seconds) - 8
                note = self._note[: max(width, 0)]
                frame = f"{_BLUE}{_SPINNER[turn % len(_SPINNER)]}{_OFF} {self._title} {seconds} {_DIM}{note}{_OFF}"
                print(f"\r\033[K  {frame}", end="", flush=True)
            else:
                print(f"     {self._title}: {seconds}, {self._note[:100]}", flush=True)


def run_step(
    title: str,
    command: Sequence[str],
    *,
    failure: Callable[[str], str],
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> None:
    """Runs a command behind one live line; its output goes to .do.log.

    `failure` turns the output's end into the sentence of the Problem that is raised when the command fails.
    """
    with Step(title) as step, open(LOG, "ab") as log:
        log.write(f"\n$ {' '.join(command)}\n".encode())
        log.flush()
        tail: list[str] = []
        process: subprocess.Popen[bytes] | None = None
        try:
            with _interrupts_later():
                process = subprocess.Popen(
                    command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            assert process.stdout is not None
            for raw in process.stdout:
                log.write(raw)
                line = raw.decode(errors="replace").rstrip()
                if line:
                    tail = [*tail[-199:], line]
                    count = _COUNT.match(line.strip())
                    if not line.startswith("WARNING"):
                        step.note(f"{count[1]} of {count[2]}" if count else line.strip())
            code = process.wait()
        except BaseException:
            if process is not None:
                _end_group(process)
            raise
        if code != 0:
            raise Problem(f"{failure(chr(10).join(tail))} (the whole output is in {LOG.relative_to(ROOT)})")


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Holds an interrupt back until the end of the block: between fork and assignment it would lose us the process."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and all it started: a compiler must not outlive a Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
