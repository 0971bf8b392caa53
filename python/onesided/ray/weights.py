"""Weights are updated in place while others read them, and nobody tells a one-sided reader that it came in the
middle. Here the owner stamps its memory with a version, odd while it writes, and a reader takes a copy only if the
stamp was the same whole version before and after it. Ray carries a small handle, once; updates cost no message."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from onesided import _core
from onesided.engine import EngineError, Status
from onesided.ray import failures, process, sources, targets
from onesided.ray.memories import Span
from onesided.ray.metadata import HixlTransportMetadata

# While the owner writes there is nothing to wait for but time: pauses between looks at its stamp, in seconds.
_KINDS = ("npu", "cpu")
_FIRST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.02


@dataclass(frozen=True)
class WeightsHandle:
    """Where the weights are and how to read them: pickles small, goes wherever Ray carries values. Dies with the
    publisher."""

    names: tuple[str, ...]
    weights: HixlTransportMetadata
    stamp: HixlTransportMetadata


def _unsupported_reason(tensor: torch.Tensor) -> str | None:
    if hasattr(tensor, "to_local"):
        return "is a DTensor, spread over processes; publish its to_local()"
    reason = sources.unsupported_reason(tensor, _KINDS)
    if reason is None and (not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg()):
        reason = "is not dense: readers could not see updates of it"
    return reason


class WeightPublisher:
    """Tensors that their owner updates in place and anybody with the handle may read. One writer at a time; thread-safe
    otherwise. The tensors must be dense and must not be replaced or resized while it lives."""

    def __init__(self, tensors: Mapping[str, torch.Tensor] | torch.nn.Module) -> None:
        """Registers the tensors' memory (once: an aligned pool's segments already are); of a module, its state's. ValueError:
        not dense."""
        if isinstance(tensors, torch.nn.Module):
            tensors = {name: value.detach() for name, value in tensors.state_dict(keep_vars=True).items()}
        for name, tensor in tensors.items():
            if (reason := _unsupported_reason(tensor)) is not None:
                raise ValueError(f"weight {name!r} {reason}")
        self._here = process.current()
        self._tensors = dict(tensors)
        self._places = [_place(tensor) for tensor in self._tensors.values()]
        self._stamp = _core.VersionStamp()
        self._id = f"weights-{uuid.uuid4().hex}"
        self._writer = threading.Lock()
        self._writing: int | None = None  # the thread that is in update()
        stamp_span = (self._stamp.address, self._stamp.nbytes, 0, self._stamp.address, self._stamp.nbytes, 0)
        stamp = self._publish("stamp", [stamp_span], [(torch.Size([self._stamp.nbytes]), torch.uint8)], "cpu", None)
        try:
            values = list(self._tensors.values())
            source = sources.prepare(values, self._here, _KINDS)
            weights = self._publish("weights", source.spans, source.meta, source.device, source.devices)
        except BaseException:
            self.close()
            raise
        self._handle = WeightsHandle(tuple(self._tensors), weights, stamp)

    def _publish(self, part: str, spans: Any, meta: Any, device: Any, devices: Any) -> HixlTransportMetadata:
        description, version = self._here.exchange.publish(f"{self._id}/{part}", spans)
        return HixlTransportMetadata(meta, device, description, self._here.engine_id, version, devices)

    @property
    def handle(self) -> WeightsHandle:
        return self._handle

    @property
    def version(self) -> int:
        """How many updates have been completed."""
        return self._stamp.version

    @contextlib.contextmanager
    def update(self) -> Iterator[Mapping[str, torch.Tensor]]:
        """`with publisher.update() as weights:` write into them. Readers refuse them meanwhile; afterwards, once the
        devices have done the work, they are the next version. If the block raises, they stay refused until an update
        succeeds, for they may be half written. ValueError: a tensor has been moved (resize_, share_memory_, .data =), so
        readers would go on reading what it was; RuntimeError: this thread is in an update already."""
        if self._writing == threading.get_ident():
            raise RuntimeError("update() inside update(): one version is written at a time")
        with self._writer:
            self._writing = threading.get_ident()
            try:
                self._stamp.begin()
                yield MappingProxyType(self._tensors)
                sources.synchronize(self._tensors.values())
                self._check_places()
                self._stamp.end()
            finally:
                self._writing = None

    def _check_places(self) -> None:
        for (name, tensor), place in zip(self._tensors.items(), self._places, strict=True):
            if _place(tensor) != place:
                raise ValueError(
                    f"weight {name!r} has been moved to other memory than readers know of; write into it "
                    "(copy_, add_, ...), or make a new publisher and send its handle"
                )

    def close(self) -> None:
        """Readers are refused from now on. Idempotent."""
        for part in ("weights", "stamp"):
            self._here.exchange.release(f"{self._id}/{part}")

    def __enter__(self) -> WeightPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_id"):
            self.close()


def _place(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.nbytes


class WeightReader:
    """Copies whole versions of published weights into buffers of its own. Confined to one thread at a time."""

    def __init__(
        self, handle: WeightsHandle, *, device: str | torch.device | None = None, double_buffer: bool = True
    ) -> None:
        """device: where they are read to; default: the owner's kind of device, the npu of this actor.
        double_buffer: the last accepted version stays intact while the next one is read, for twice the memory. Without
        it, a pull() that fails leaves the buffers undefined. RuntimeError: no npu in this process."""
        self._here = process.current()
        self._handle = handle
        self._id = f"read-{uuid.uuid4().hex}"
        [self._stamp] = targets.allocate(handle.stamp, self._here)
        self._stamp_span = self._here.receive_spans([self._stamp])
        self._buffers = [targets.allocate(handle.weights, self._here, device) for _ in range(2 if double_buffer else 1)]
        self._spans = [self._here.receive_spans(buffers) for buffers in self._buffers]
        self.version: int | None = None
        """The version that `weights` holds; None before the first pull()."""
        self.torn_reads = 0
        """Copies thrown away so far because the owner wrote meanwhile."""

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The last accepted version, by name. The same tensors come back every second pull (every pull without
        double_buffer)."""
        return dict(zip(self._handle.names, self._buffers[0], strict=True))

    def pull(self, timeout_s: float = 60.0, *, newer_than: int | None = None) -> tuple[int, dict[str, torch.Tensor]]:
        """The version that the owner has now, whole. With newer_than, waits for a later one. TimeoutError: none was
        whole in time. RayDirectTransportError: the owner is gone, or closed the publisher."""
        deadline = time.monotonic() + timeout_s
        pause = _FIRST_PAUSE_S
        while True:
            before = self._read_stamp(deadline)
            if before is not None and (newer_than is None or before > newer_than):
                if before == self.version:
                    return before, self.weights
                # Kernels of this process may still read what these buffers held before.
                sources.synchronize(self._buffers[-1])
                if len(self._buffers) == 1:
                    self.version = None  # until the copy is whole
                self._read(self._handle.weights, self._spans[-1], deadline)
                if self._read_stamp(deadline) == before:
                    self._buffers.reverse()
                    self._spans.reverse()
                    self.version = before
                    return before, self.weights
                self.torn_reads += 1
            if time.monotonic() + pause > deadline:
                raise TimeoutError(
                    f"no whole version{'' if newer_than is None else f' after {newer_than}'} of the weights within "
                    f"{timeout_s} s ({self.torn_reads} copies were torn); the owner may be writing all the time"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _read_stamp(self, deadline: float) -> int | None:
        self._read(self._handle.stamp, self._stamp_span, deadline)
        return _core.VersionStamp.read(self._stamp.numpy().tobytes())

    def _read(self, metadata: HixlTransportMetadata, into: list[Span], deadline: float) -> None:
        left_ms = max(1, round(1000 * (deadline - time.monotonic())))
        late = TimeoutError(f"reading weights from {metadata.engine_id} took longer than the time given")
        try:
            fetch = self._here.fetch(self._id, metadata, into, min(left_ms, self._here.connect_timeout_ms))
        except EngineError as error:
            if error.status == Status.TIMEOUT and time.monotonic() >= deadline:
                raise late from error
            raise _gone(metadata, str(error)) from error
        state = fetch.wait(max(0, round(1000 * (deadline - time.monotonic()))))
        if state == "RUNNING":
            fetch.abort()
            raise late
        if state != "DONE":
            raise _gone(metadata, fetch.error[1])


def _gone(metadata: HixlTransportMetadata, cause: str) -> Exception:
    return failures.transport_error(
        f"the weights' publisher at {metadata.engine_id} was closed or is gone; get a new handle from its owner ({cause})"
    )
