"""A program on the user's terminal gets to clean up after a Ctrl-C; whoever started it waits until it has."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType

from .environment import child_environment
from .paths import ROOT


def run_program(command: Sequence[str], *, settings: Mapping[str, str] | None = None) -> int:
    """Runs a program of .venv with this terminal's output and no input.

    An interrupt is passed on (the terminal may have delivered it already: programs of ours take a second one calmly)
    and raised here as KeyboardInterrupt once the program has ended.
    """
    process: subprocess.Popen[bytes] | None = None
    interrupted = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        if process is not None:
            process.send_signal(number)

    old = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, env=child_environment(**(settings or {})), stdin=subprocess.DEVNULL
        )
        code = process.wait()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if interrupted:
        raise KeyboardInterrupt
    return code if code >= 0 else 128 - code
