"""Published weights, read straight into this process's own: one version of everything, or the weights are marked as not
usable."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onesided import _core
from onesided.engine import Engine, EngineError, TransferStatus
from onesided.weights import meeting
from onesided.weights.boxes import Box, Weights, boxes_of
from onesided.weights.errors import WeightsError
from onesided.weights.memory import RegisteredMemory
from onesided.weights.plan import Phase, Plan, make_plan

_FIRST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.02


@dataclass(frozen=True)
class Update:
    """One update: the version that the weights hold now and what it cost. `torn`: reads thrown away because a publisher
    wrote meanwhile; their bytes count in bytes_moved."""

    version: int
    bytes_needed: int
    bytes_moved: int
    seconds: float
    torn: int
    bytes_from: dict[int, int]

    def __str__(self) -> str:
        return (
            f"version {self.version}: {self.bytes_needed} bytes needed, {self.bytes_moved} moved from "
            f"{len(self.bytes_from)} ranks in {self.seconds:.3f} s, {self.bytes_moved / max(self.seconds, 1e-9) / 1e9:.2f} GB/s"
        )


class _Gone(Exception):
    def __init__(self, rank: int, cause: EngineError) -> None:
        super().__init__(f"rank {rank}: {cause}")
        self.rank = rank


class Subscription:
    """What subscribe() gives back. Confined to one thread at a time."""

    def __init__(
        self,
        weights: torch.nn.Module | Weights,
        at: Any,
        group: str,
        reader: int | None,
        staging_bytes: int,
        engine: Engine | None,
        timeout_s: float,
    ) -> None:
        self._boxes: Sequence[Box] = list(boxes_of(weights))
        self._at, self._group = at, group
        self._reader = random.getrandbits(16) if reader is None else reader
        self._own_engine = engine is None
        self._engine = engine or Engine("127.0.0.1:0", {"auto_connect": "on"})
        self._memory: RegisteredMemory | None = None
        self._staging_bytes = staging_bytes
        # What is written where publishers wait for their readers: a number of this read, and nothing.
        self._mark = torch.zeros(2, dtype=torch.int64)
        self._staging = torch.empty(0, dtype=torch.uint8)
        self._plan: Plan | None = None
        self.version: int | None = None
        """The version that the weights hold; None: they are not usable, before the first update() or after one that
        failed."""
        self.plans = 0
        """Plans made so far; a changed publisher needs a new one."""
        self._make_plan(timeout_s)

    @property
    def usable(self) -> bool:
        return self.version is not None

    @property
    def plan(self) -> Plan:
        assert self._plan is not None
        return self._plan

    def _make_plan(self, timeout_s: float) -> None:
        manifests = meeting.collect(self._at, self._group, timeout_s)
        published = {name: dtype for manifest in manifests for name, dtype, _ in manifest.parameters}
        converts = any(
            published.get(box.name, "") not in ("", str(box.tensor.dtype).removeprefix("torch.")) for box in self._boxes
        )
        if converts and self._staging.numel() == 0:
            self._staging = torch.empty(self._staging_bytes, dtype=torch.uint8)
        plan = make_plan(self._engine, self._boxes, manifests, self._reader, self._staging)
        if self._memory is None:
            self._stamps = torch.zeros(16 * manifests[0].world, dtype=torch.uint8)
            self._memory = RegisteredMemory(
                self._engine, [self._stamps, self._mark, self._staging, *(box.tensor for box in self._boxes)]
            )
        elif self._stamps.numel() < 16 * manifests[0].world:
            self._memory.close()
            self._memory = None
            return self._make_plan(timeout_s)
        self._stamp_reads = {
            rank: described.pairs([(self._stamps.data_ptr() + 16 * rank, 0, 0, 16)])
            for rank, (_, described) in plan.ranks.items()
        }
        self._mark_writes = {
            rank: [
                described.pairs([(self._mark.data_ptr() + 8 * word, 1, 8 * (self._reader % manifest.marks), 8)])
                for word in range(2)
            ]
            for rank, (manifest, described) in plan.ranks.items()
            if manifest.marks > 0
        }
        self._plan = plan
        self.plans += 1

    def update(self, timeout_s: float = 60.0, *, newer_than: int | None = None) -> Update:
        """Reads the version that all ranks have committed into the weights. With newer_than, waits for a later one.
        WeightsError: none was whole in time, or a rank is gone; `version` is None then unless no byte had been read."""
        start = time.monotonic()
        deadline = start + timeout_s
        pause, torn, moved = _FIRST_PAUSE_S, 0, 0
        last = "no rank answered"
        while True:
            try:
                plan = self.plan
                version, last = self._common_version(deadline)
                if version is not None and version == self.version and newer_than is None:
                    return self._update(moved, torn, start)
                if version is not None and (newer_than is None or version > newer_than):
                    whole = self._read_marked(plan, version, deadline)
                    moved += plan.bytes_needed * (whole is not None)
                    if whole:
                        self.version = version
                        return self._update(moved, torn, start)
                    torn += 1
            except _Gone as gone:
                last = str(gone)
                self._replan(gone, deadline)
            if time.monotonic() + pause > deadline:
                raise WeightsError(
                    f"no whole version{'' if newer_than is None else f' after {newer_than}'} within {timeout_s} s "
                    f"({torn} reads were torn; {last}); "
                    + (
                        "the weights are as they were"
                        if self.usable
                        else "the weights are not usable until an update succeeds"
                    )
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _update(self, moved: int, torn: int, start: float) -> Update:
        assert self.version is not None
        plan = self.plan
        return Update(self.version, plan.bytes_needed, moved, time.monotonic() - start, torn, plan.bytes_from)

    def _common_version(self, deadline: float) -> tuple[int | None, str]:
        """The version that all ranks have; else nothing, and why."""
        requests = [(rank, self._begin(rank, items, deadline)) for rank, items in self._stamp_reads.items()]
        self._wait(requests)
        raw = self._stamps.numpy().tobytes()
        versions = {rank: _core.VersionStamp.read(raw[16 * rank : 16 * rank + 16]) for rank, _ in requests}
        writing = [rank for rank, version in versions.items() if version is None]
        if writing:
            return None, f"ranks {writing} are in an update"
        if 0 in versions.values():
            return (
                None,
                f"ranks {[rank for rank, version in versions.items() if version == 0]} have committed nothing yet",
            )
        if len(set(versions.values())) > 1:
            return None, f"ranks have committed different versions {versions}"
        return next(iter(versions.values()), None), ""

    def _read_marked(self, plan: Plan, version: int, deadline: float) -> bool | None:
        """Whether all of it is of that version; None: it was another one before the first byte was read."""
        self._mark[0] = random.getrandbits(62) | 1
        try:
            self._write_marks(0, deadline)
            if self._mark_writes and self._common_version(deadline)[0] != version:
                return None
            self.version = None  # until all of it is here
            self._read(plan, deadline)
            return self._common_version(deadline)[0] == version
        finally:
            with contextlib.suppress(_Gone):
                self._write_marks(1, deadline)

    def _write_marks(self, word: int, deadline: float) -> None:
        self._wait(
            [(rank, self._begin(rank, items[word], deadline, "WRITE")) for rank, items in self._mark_writes.items()]
        )

    def _read(self, plan: Plan, deadline: float) -> None:
        """Into the two halves of the staging buffer in turn: one is converted while the other is filled."""
        before: Phase | None = None
        for phase in plan.phases:
            requests = [(rank, self._begin(rank, items, deadline)) for rank, items in phase.reads]
            try:
                if before is not None:
                    for conversion in before.conversions:
                        conversion.target.copy_(conversion.staged)
            finally:
                self._wait(requests)
            before = phase
        if before is not None:
            for conversion in before.conversions:
                conversion.target.copy_(conversion.staged)

    def _begin(self, rank: int, items: Any, deadline: float, op: str = "READ") -> Any:
        left_ms = max(1, round(1000 * (deadline - time.monotonic())))
        try:
            return self._engine.transfer_async(self.plan.ranks[rank][0].engine_id, op, items, left_ms)
        except EngineError as error:
            raise _Gone(rank, error) from error

    def _wait(self, requests: list[tuple[int, Any]]) -> None:
        """All of them, whatever becomes of one: nothing moves afterwards."""
        failed: _Gone | None = None
        for rank, request in requests:
            if request.wait() != TransferStatus.COMPLETED and failed is None:
                failed = _Gone(rank, request.error)
        if failed is not None:
            raise failed

    def _replan(self, gone: _Gone, deadline: float) -> None:
        """For a publisher that was restarted. WeightsError: it left nothing new."""
        before = {rank: manifest.description for rank, (manifest, _) in self.plan.ranks.items()}
        while True:
            with_new = meeting.collect(self._at, self._group, max(0.0, deadline - time.monotonic()))
            if any(before.get(manifest.rank, manifest.description) != manifest.description for manifest in with_new):
                return self._make_plan(max(0.0, deadline - time.monotonic()))
            if time.monotonic() + _LONGEST_PAUSE_S > deadline:
                state = "as they were" if self.usable else "not usable until an update succeeds"
                raise WeightsError(
                    f"{gone}; that publisher is gone and has left no new handle. Restart rank {gone.rank}, or subscribe to "
                    f"another publication. The weights are {state}"
                ) from gone
            time.sleep(_LONGEST_PAUSE_S)

    def close(self) -> None:
        """Gives back all memory and threads; the weights stay as they are. Idempotent."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self._own_engine:
            self._engine.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def subscribe(
    weights: torch.nn.Module | Weights,
    *,
    at: Any,
    group: str = "weights",
    reader: int | None = None,
    staging_bytes: int = 16 << 20,
    engine: Engine | None = None,
    timeout_s: float = 60.0,
) -> Subscription:
    """Plans how to read the published weights into these: a module, or tensors, DTensors and Slices by name, in any
    sharding. A dtype that differs is converted through `staging_bytes` of host memory, which is all the memory that this
    takes.

    at: where the publishers left their handles (a directory, a torch.distributed store), or the handles. reader: ranks
    that differ in it begin at different replicas. WeightsError: names the parameter that is missing or differs."""
    return Subscription(weights, at, group, reader, staging_bytes, engine, timeout_s)
