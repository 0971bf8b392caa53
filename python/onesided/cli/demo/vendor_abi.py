"""Why: one place knows how the demo talks to an engine as a program written for the vendor's library would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How registering and connecting went. A value."""

    connected: bool
    code: int  # 0, or the vendor's status
    text: str  # what the engine said
    driver_line: str  # what the driver logged of it; empty when it had nothing to say


def register_and_connect(ranges: Sequence[tuple[int, int]]) -> Outcome:
    """Registers (address, bytes) of device memory with one engine and connects a second one to it."""
    raise NotImplementedError
