"""The rules of `sub_block_alignment`, the same for pools and for allocators."""

from __future__ import annotations

import operator
from typing import Any

SMALLEST = 4096
LARGEST = 1 << 30


def checked(value: Any) -> int:
    """The alignment in bytes, 0 for off (None, 0). TypeError: not an int; ValueError: violates the rule, which the text
    names."""
    if value is None:
        return 0
    if isinstance(value, bool):
        raise TypeError("sub_block_alignment must be an int (bytes) or None, not bool")
    try:
        alignment = operator.index(value)
    except TypeError:
        raise TypeError(f"sub_block_alignment must be an int (bytes) or None, not {type(value).__name__}") from None
    if alignment == 0:
        return 0
    if alignment < SMALLEST or alignment > LARGEST or alignment & (alignment - 1):
        raise ValueError(
            f"sub_block_alignment is {alignment}: it must be a power of two from {SMALLEST} (the device's page) to "
            f"{LARGEST} (1 GiB)"
        )
    return alignment
