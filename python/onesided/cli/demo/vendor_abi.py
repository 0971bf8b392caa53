"""One place knows how the demo talks to an engine as a program written for the vendor's library would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesided.ascend_sim.vendor import VendorEngine, VendorError


@dataclass(frozen=True)
class Outcome:
    """How registering and connecting went. A value."""

    connected: bool
    code: int  # 0, or the vendor's status
    text: str  # what a caller of the engine learns
    driver_line: str  # what the driver logged of it; empty when it had nothing to say


def register_and_connect(ranges: Sequence[tuple[int, int]]) -> Outcome:
    """Registers (address, bytes) of the current device's memory with one engine and connects a second one to it."""
    try:
        with VendorEngine("127.0.0.1:0") as owner, VendorEngine("127.0.0.1:0") as reader:
            for address, nbytes in ranges:
                owner.register(address, nbytes, "device")
            reader.connect(owner.id)
    except VendorError as error:
        return Outcome(False, error.code, f"{error.call} failed with {error.code}", error.driver_line)
    return Outcome(True, 0, "connected", "")
