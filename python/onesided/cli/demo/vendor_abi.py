"""The demo's use of an engine as by a program written for the vendor's library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onesided.ascend_sim.vendor import VendorEngine, VendorError


@dataclass(frozen=True)
class Outcome:
    """The result of registering and connecting. A value."""

    connected: bool
    code: int  # 0, or the vendor's status
    text: str  # the error that a caller of the engine gets
    driver_line: str  # the driver's log message; empty if there is none


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
