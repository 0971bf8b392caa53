"""A rank's weights, published where they lie. Updates cost no message: a stamp beside the weights is odd while they are
written, and readers look at it before and after they read."""

from __future__ import annotations

import contextlib
import threading
import time
from array import array
from collections.abc import Iterator
from typing import Any

import torch

from onesided import _core
from onesided.engine import Engine
from onesided.weights import meeting
from onesided.weights.boxes import Box, Slice, Weights, boxes_of, state_of
from onesided.weights.errors import WeightsError
from onesided.weights.manifest import Manifest
from onesided.weights.memory import RegisteredMemory, box_row, parameters_of

_MARKS = 64
_PAUSE_S = 0.0005


class Publication:
    """What publish() gives back. One writer at a time; the tensors must not be moved while it lives."""

    def __init__(
        self,
        weights: torch.nn.Module | Weights,
        rank: int,
        world: int,
        at: Any,
        group: str,
        engine: Engine | None,
        wait_for_readers_s: float,
    ) -> None:
        if not 0 <= rank < world:
            raise WeightsError(f"rank {rank} of a world of {world}; pass rank= and world=")
        self.rank = rank
        self._boxes = list(boxes_of(weights))
        self._weights = weights
        self._places = _places(weights)
        self._own_engine = engine is None
        self._engine = engine or Engine("127.0.0.1:0")
        self._stamp = _core.VersionStamp()
        self._stamp_handle = self._engine.register_mem(self._stamp.address, self._stamp.nbytes)
        # Words in which readers say that they read; other numbers at every read.
        self._marks = torch.zeros(_MARKS if wait_for_readers_s > 0 else 0, dtype=torch.int64)
        self._wait_for_readers_s = wait_for_readers_s
        self.readers_failed = 0
        """Reads that an update did not wait for, because they took longer than wait_for_readers_s or their reader died."""
        self._memory: RegisteredMemory | None = None
        self._writer = threading.Lock()
        self._writing = False
        try:
            self._memory = RegisteredMemory(self._engine, [self._marks, *(box.tensor for box in self._boxes)])
            self._manifest = self._describe(self._memory, rank, world, group)
            if at is not None:
                meeting.leave(at, self._manifest)
        except BaseException:
            self.close()
            raise

    def _describe(self, memory: RegisteredMemory, rank: int, world: int, group: str) -> Manifest:
        parameters = parameters_of(self._boxes)
        numbers = {name: number for number, name in enumerate(parameters)}
        table: array[int] = array("Q")
        first = [(self._stamp.address, self._stamp.nbytes)]
        if self._marks.numel() > 0:
            first.append((self._marks.data_ptr(), self._marks.nbytes))
        for box in self._boxes:
            item, base = memory.place(box.tensor.data_ptr())
            table.extend(box_row(numbers[box.name], item + len(first), base, box.offsets, box.tensor))
        description = self._engine.describe([*first, *memory.ranges])
        listed = tuple((name, dtype, shape) for name, (dtype, shape) in parameters.items())
        return Manifest(group, rank, world, self._engine.id, description, listed, table, self._marks.numel())

    @property
    def handle(self) -> bytes:
        """For readers that get it by hand: subscribe(..., at=[handle of each rank])."""
        return self._manifest.encode()

    @property
    def version(self) -> int:
        """The last that was committed; 0: none yet, and readers wait."""
        return int(self._stamp.version)

    def begin_update(self) -> None:
        """Readers refuse the weights from now on. WeightsError: an update is under way."""
        with self._writer:
            if self._writing:
                raise WeightsError(f"rank {self.rank}: begin_update() while an update is under way; commit() it first")
            self._wait_for_readers()
            self._writing = True
            self._stamp.begin()

    def _wait_for_readers(self) -> None:
        """For those that read now; who comes later finds the stamp odd. A mark that stays is a reader's that died."""
        reading = {i: mark for i, mark in enumerate(self._marks.tolist()) if mark != 0}
        deadline = time.monotonic() + self._wait_for_readers_s
        while reading and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            now = self._marks.tolist()
            reading = {i: mark for i, mark in reading.items() if now[i] == mark}
        for i in reading:
            self._marks[i] = 0
        self.readers_failed += len(reading)

    def commit(self, version: int | None = None) -> int:
        """The weights are whole: this rank's next version, or `version`, which must be greater than any before. All ranks
        must commit the same. WeightsError: no update under way, a version that is not greater, or a tensor that was moved
        to other memory than readers know of; the weights stay refused."""
        with self._writer:
            if not self._writing:
                raise WeightsError(f"rank {self.rank}: commit() without begin_update()")
            self.check_places()
            for device in {box.tensor.device for box in self._boxes if box.tensor.device.type != "cpu"}:
                getattr(torch, device.type).synchronize(device)
            if version is None:
                self._stamp.end()
            elif not self._stamp.end_as(version):
                raise WeightsError(f"rank {self.rank}: version {version} is not greater than {self.version}")
            self._writing = False
            return self.version

    @contextlib.contextmanager
    def update(self, version: int | None = None) -> Iterator[None]:
        """`with publication.update():` write into the weights. If the block raises, they stay refused until an update
        succeeds."""
        if not self._writing:
            self.begin_update()
        yield
        self.commit(version)

    def check_places(self) -> None:
        """WeightsError: a tensor has been moved (.data =, resize_, a new Parameter), and readers would go on reading what it was."""
        now = _places(self._weights)
        for name in sorted(self._places.keys() | now.keys()):
            if self._places.get(name) != now.get(name):
                raise WeightsError(
                    f"parameter {name!r} of rank {self.rank} has been moved to other memory; write into it (copy_), or "
                    "publish anew"
                )

    def verify(self, weights: torch.nn.Module | Weights) -> int:
        """Proves that what is published is what `weights` holds now: the same boxes, in the same memory or with the same
        bytes. Returns how many were compared by their bytes. WeightsError: names the parameter whose published copy is not
        what the model trains."""
        theirs = {(box.name, box.offsets): box for box in boxes_of(weights)}
        ours = {(box.name, box.offsets): box for box in self._boxes}
        if theirs.keys() != ours.keys():
            names = sorted({name for name, _ in theirs.keys() ^ ours.keys()})
            raise WeightsError(f"rank {self.rank} publishes other boxes than the model has: {names[:5]}; publish anew")
        compared = 0
        for key, box in theirs.items():
            if _place(box) == _place(ours[key]):
                continue
            compared += 1
            if not torch.equal(box.tensor, ours[key].tensor):
                raise WeightsError(
                    f"parameter {box.name!r} of rank {self.rank}: the published memory is not what the model holds; it was "
                    "replaced after publish()"
                )
        return compared

    def close(self) -> None:
        """Readers are refused from now on. Idempotent."""
        if self._memory is not None:
            self._memory.close()
        if self._stamp_handle is not None:
            self._engine.deregister_mem(self._stamp_handle)
            self._stamp_handle = None
        if self._own_engine:
            self._engine.close()

    def __enter__(self) -> Publication:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _places(weights: torch.nn.Module | Weights) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for name, value in state_of(weights).items():
        parts = value if isinstance(value, list | tuple) else [value]
        tensors: list[Any] = [part.tensor if isinstance(part, Slice) else part for part in parts]
        places[name] = [(t.to_local() if hasattr(t, "to_local") else t).data_ptr() for t in tensors]
    return places


def _place(box: Box) -> tuple[int, int]:
    return box.tensor.untyped_storage().data_ptr(), box.tensor.data_ptr()


def publish(
    weights: torch.nn.Module | Weights,
    *,
    rank: int = 0,
    world: int = 1,
    at: Any = None,
    group: str = "weights",
    engine: Engine | None = None,
    wait_for_readers_s: float = 0.0,
) -> Publication:
    """Publishes this rank's part of the weights: a module (FSDP2 too), or tensors, DTensors and Slices by name. Nothing is
    copied. Readers wait until the first commit().

    at: a directory or a torch.distributed store where readers look for `group`; without it, pass `handle` on yourself.
    engine: one of the caller's; else one that listens on this host. wait_for_readers_s: begin_update() waits so long for
    those that read the old version; 0: they read again. WeightsError: a layout that cannot be published
    (Partial, no dense memory); names the parameter."""
    return Publication(weights, rank, world, at, group, engine, wait_for_readers_s)
