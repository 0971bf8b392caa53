"""Which registered piece holds an address: NIXL lets registrations overlap, the engine does not.

A range that overlaps registered memory is registered as the pieces that are still missing; a transfer over the border
of two pieces is cut there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

Range = tuple[int, int]


def missing(pieces: Sequence[Range], address: int, nbytes: int) -> list[Range]:
    """The parts of [address, address + nbytes) that none of these disjoint (address, nbytes) pieces holds."""
    gaps: list[Range] = []
    at, end = address, address + nbytes
    for start, length in sorted(pieces):
        if start + length <= at:
            continue
        if start >= end:
            break
        if start > at:
            gaps.append((at, start - at))
        at = start + length
    if at < end:
        gaps.append((at, end - at))
    return gaps


class Coverage:
    """Disjoint pieces, found by address. A value."""

    def __init__(self, pieces: Sequence[Range]) -> None:
        rows = np.array(pieces, dtype=np.uint64).reshape(-1, 2)
        self.order = np.argsort(rows[:, 0], kind="stable")
        self.starts = rows[self.order, 0]
        self.ends = self.starts + rows[self.order, 1]

    def holds(self, addresses: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """For each range: whether the pieces hold all of it."""
        if not len(self.starts):
            return np.zeros(len(addresses), dtype=bool)
        at = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        ends = addresses + sizes
        inside = (at >= 0) & (ends >= addresses)
        safe = np.maximum(at, 0)
        held = inside & (addresses < self.ends[safe]) & (ends <= self.ends[safe])
        for i in np.flatnonzero(inside & ~held & (addresses < self.ends[safe])):  # over a border, or past the end
            held[i] = not missing(self._pieces_from(int(at[i])), int(addresses[i]), int(sizes[i]))
        return held

    def _pieces_from(self, first: int) -> list[Range]:
        starts, ends = self.starts[first:].tolist(), self.ends[first:].tolist()
        return [(start, end - start) for start, end in zip(starts, ends, strict=True)]

    def cuts(self, addresses: np.ndarray, sizes: np.ndarray) -> list[tuple[int, int]]:
        """(row, bytes from its start) of each border between pieces that lies inside a row."""
        at = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        over = np.flatnonzero(addresses + sizes > self.ends[np.maximum(at, 0)])
        found: list[tuple[int, int]] = []
        for row in over:
            piece, end = int(at[row]), int(addresses[row] + sizes[row])
            while int(self.ends[piece]) < end:
                found.append((int(row), int(self.ends[piece]) - int(addresses[row])))
                piece += 1
        return found

    def locate(self, addresses: np.ndarray) -> np.ndarray:
        """For each held address: the number of its piece, in the order they were given."""
        return self.order[np.searchsorted(self.starts, addresses, side="right") - 1]


def split(rows: np.ndarray, cuts: Sequence[tuple[int, int]]) -> np.ndarray:
    """N x 3 (local, remote, bytes) with each row cut at these distances from its start."""
    if not cuts:
        return rows
    by_row: dict[int, set[int]] = {}
    for row, distance in cuts:
        by_row.setdefault(row, set()).add(distance)
    pieces: list[tuple[int, int, int]] = []
    for number, (local, remote, nbytes) in enumerate(rows.tolist()):
        borders = [0, *sorted(by_row.get(number, ())), nbytes]
        pieces.extend((local + a, remote + a, b - a) for a, b in itertools.pairwise(borders))
    return np.array(pieces, dtype=np.uint64)
