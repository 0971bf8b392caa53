"""Prepared lists and transfer requests of one agent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from onesided.compat.nixl.codes import (
    nixl_mem_t,
    nixl_status_t,
    nixl_xfer_op_t,
    nixlInvalidParamError,
    nixlNoTelemetryError,
    nixlNotPostedError,
    nixlRepostActiveError,
    of_engine,
    refusal,
)
from onesided.compat.nixl.coverage import split
from onesided.compat.nixl.memory import RemoteMemory
from onesided.compat.nixl.outbox import Notice, Outbox
from onesided.engine import BoundItems, Engine, EngineError, PreparedList, Request, TransferStatus

# A prepared list of each side, with indices: local, remote.
Prepared = tuple[PreparedList, np.ndarray, PreparedList, np.ndarray]


@dataclass(frozen=True)
class PreparedSide:
    """One side of transfers by index: checked rows (address, bytes, device number). A value."""

    agent: str | None  # None: this agent's own memory
    kind: nixl_mem_t
    rows: np.ndarray
    bound: PreparedList | None = None  # None: a row is empty or lies in several registered pieces


@dataclass
class nixlXferTelemetry:
    """What one posted transfer did: microseconds, bytes, descriptors. A value."""

    startTime: int = 0
    postDuration: int = 0
    xferDuration: int = 0
    totalBytes: int = 0
    descCount: int = 0


def chosen(indices: Any, count: int, side: str) -> np.ndarray:
    """Indices into a list of `count` descriptors. nixlInvalidParamError: one is out of range, or no integer."""
    try:
        numbers = np.asarray(indices)
    except ValueError:
        numbers = np.asarray(None)
    if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu":
        raise refusal(nixlInvalidParamError, f"{side} indices: expected a list of at least one integer")
    if int(numbers.min()) < 0 or int(numbers.max()) >= count:
        bad = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
        raise refusal(nixlInvalidParamError, f"{side} index {bad}: the list has {count} descriptors")
    return np.array(numbers, dtype=np.int64)  # the caller may change its own


def check_pairs(local: np.ndarray, remote: np.ndarray) -> None:
    """Lengths of both sides. nixlInvalidParamError: the two sides differ in number or length."""
    if len(local) != len(remote):
        raise refusal(nixlInvalidParamError, f"{len(local)} local and {len(remote)} remote descriptors")
    if not np.array_equal(local, remote):
        first = int(np.flatnonzero(local != remote)[0])
        raise refusal(
            nixlInvalidParamError,
            f"descriptor {first}: {int(local[first])} local and {int(remote[first])} remote bytes",
        )


def pair_up(local: np.ndarray, remote: np.ndarray) -> np.ndarray:
    """N x 3 (local, remote, bytes). nixlInvalidParamError: as check_pairs()."""
    check_pairs(local[:, 1], remote[:, 1])
    return np.stack([local[:, 0], remote[:, 0], local[:, 1]], axis=1)


class XferRequest:
    """One transfer that may be posted again and again, one at a time. Confined to its agent's lock."""

    def __init__(
        self,
        op: nixl_xfer_op_t,
        agent: str,
        peer: str,
        items: BoundItems | Prepared | None,
        nbytes: int,
        count: int,
    ) -> None:
        self.agent = agent
        self._op = "READ" if op == nixl_xfer_op_t.NIXL_READ else "WRITE"
        self._peer = peer
        self._items = items
        self._nbytes = nbytes
        self._count = count
        self._posted = False
        self._request: Request | None = None
        self._notice: Notice | None = None
        self._failure: Exception | None = None
        self._times = (0, 0)  # start, posted, in ns

    @staticmethod
    def bind(remote: RemoteMemory, rows: np.ndarray, cuts: list[tuple[int, int]]) -> BoundItems | None:
        """The rows (local, remote, bytes) as items bound to what the remote agent described; None: nothing to move."""
        rows = split(rows, cuts)
        rows = rows[rows[:, 2] > 0]
        if not len(rows):
            return None
        pieces = remote.coverage.locate(rows[:, 1])
        starts = remote.coverage.starts[np.argsort(remote.coverage.order)][pieces]
        pairs = np.stack([rows[:, 0], pieces.astype(np.uint64), rows[:, 1] - starts, rows[:, 2]], axis=1)
        return remote.regions.pairs(pairs)

    def post(self, engine: Engine, outbox: Outbox, name: str, message: bytes) -> nixl_status_t:
        if self._posted and self.status() == nixl_status_t.NIXL_IN_PROG:
            raise refusal(nixlRepostActiveError, "the transfer is still under way")
        self._posted, self._request, self._notice, self._failure = True, None, None, None
        start = time.monotonic_ns()
        try:
            if isinstance(self._items, tuple):
                self._request = engine.transfer(self._op, *self._items)
            elif self._items is not None:
                self._request = engine.transfer_async(self._peer, self._op, self._items)
        except EngineError as error:
            self._failure = of_engine(error, f"{self._op} with {self._peer}")
            raise self._failure from None
        self._times = (start, time.monotonic_ns())
        if message:
            self._notice = Notice(name, message, self._request)
            outbox.put(self._notice)
        return self.status()

    def status(self) -> nixl_status_t:
        """NIXL_SUCCESS or NIXL_IN_PROG; raises what went wrong, each time it is asked."""
        if not self._posted:
            raise refusal(nixlNotPostedError, "the transfer was not posted")
        if self._failure is not None:
            raise self._failure
        status = TransferStatus.COMPLETED if self._request is None else self._request.status()
        if status == TransferStatus.WAITING:
            return nixl_status_t.NIXL_IN_PROG
        if status != TransferStatus.COMPLETED and self._request is not None:
            self._failure = of_engine(self._request.error, f"{self._op} with {self._peer}")
            raise self._failure
        if self._notice is not None:
            if not self._notice.done.is_set():
                return nixl_status_t.NIXL_IN_PROG
            if self._notice.error is not None:
                self._failure = of_engine(self._notice.error, f"notification to {self._peer}")
                raise self._failure
        return nixl_status_t.NIXL_SUCCESS

    def release(self) -> None:
        """Ends it; returns when no byte of it moves."""
        if self._request is not None:
            self._request.cancel()

    def telemetry(self, captured: bool) -> nixlXferTelemetry:
        if not captured:
            raise refusal(nixlNoTelemetryError, "the agent was made without capture_telemetry")
        if self.status() == nixl_status_t.NIXL_IN_PROG:
            raise refusal(nixlNoTelemetryError, "the transfer is still under way")
        start, posted = self._times
        # What moved while it was posted took no longer than that.
        moved_us = max((posted - start) // 1000, 0 if self._request is None else self._request.elapsed_us)
        return nixlXferTelemetry(start // 1000, (posted - start) // 1000, moved_us, self._nbytes, self._count)
