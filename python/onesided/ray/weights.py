"""Publication of weights that are updated in place. A one-sided reader is not notified of a concurrent update. The
owner therefore stamps its memory with a version, odd during a write, and a reader accepts a copy only if the stamp was
the same even version before and after it. Ray carries a small handle, once; updates need no message."""

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

# Pauses between reads of the stamp while the owner writes, in seconds; there is no event to wait for.
_KINDS = ("npu", "cpu")
_FIRST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.02


@dataclass(frozen=True)
class WeightsHandle:
    """A handle to published weights: small when pickled, can be sent as any value of Ray. Invalid after the publisher's
    end."""

    names: tuple[str, ...]
    weights: HixlTransportMetadata
    stamp: HixlTransportMetadata


def _unsupported_reason(tensor: torch.Tensor) -> str | None:
    if hasattr(tensor, "to_local"):
        return "is a DTensor, spread over processes; publish its to_local()"
    reason = sources.unsupported_reason(tensor, _KINDS)
    if reason is None and (not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg()):
        reason = "is not dense: readers would not get updates of it"
    return reason


class WeightPublisher:
    """Tensors that their owner updates in place and that every process with the handle may read. One writer at a time;
    otherwise thread-safe. The tensors must be dense and must not be replaced or resized while the publisher exists."""

    def __init__(self, tensors: Mapping[str, torch.Tensor] | torch.nn.Module) -> None:
        """Registers the memory of the tensors, or of a module's state (segments of an aligned pool are registered
        already). ValueError: not dense."""
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
        """The number of completed updates."""
        return self._stamp.version

    @contextlib.contextmanager
    def update(self) -> Iterator[Mapping[str, torch.Tensor]]:
        """`with publisher.update() as weights:` write into the tensors. Readers refuse them meanwhile; after the block,
        when the devices have done the work, they are the next version. If the block raises, readers refuse them until
        an update succeeds, because they may be partly written. ValueError: a tensor has been moved (resize_,
        share_memory_, .data =), so readers would continue to read the old memory. RuntimeError: this thread is in an
        update already."""
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
                    f"weight {name!r} has been moved to memory that readers do not have; write into it "
                    "(copy_, add_, ...), or make a new publisher and send its handle"
                )

    def close(self) -> None:
        """Ends the publication: readers are refused from now on. Idempotent."""
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
    """Copies complete versions of published weights into its own buffers. Confined to one thread at a time."""

    def __init__(
        self, handle: WeightsHandle, *, device: str | torch.device | None = None, double_buffer: bool = True
    ) -> None:
        """device: the target of the copies; default: the owner's kind of device, on this actor's npu. double_buffer:
        the last accepted version stays valid while the next one is read, at the cost of twice the memory. Without it, a
        failed pull() leaves the buffers undefined. RuntimeError: no npu in this process."""
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
        """Copies discarded so far because the owner wrote meanwhile."""

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The last accepted version, by name. The same tensors are returned by every second pull (by every pull without
        double_buffer)."""
        return dict(zip(self._handle.names, self._buffers[0], strict=True))

    def pull(self, timeout_s: float = 60.0, *, newer_than: int | None = None) -> tuple[int, dict[str, torch.Tensor]]:
        """Reads the owner's current version completely. With newer_than, waits for a later one. TimeoutError: no
        complete version was read in time. RayDirectTransportError: the owner has ended, or closed the publisher."""
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
                    self.version = None  # until the copy is complete
                self._read(self._handle.weights, self._spans[-1], deadline)
                if self._read_stamp(deadline) == before:
                    self._buffers.reverse()
                    self._spans.reverse()
                    self.version = before
                    return before, self.weights
                self.torn_reads += 1
            if time.monotonic() + pause > deadline:
                raise TimeoutError(
                    f"no complete version{'' if newer_than is None else f' after {newer_than}'} of the weights within "
                    f"{timeout_s} s ({self.torn_reads} copies were torn); the owner may be writing permanently"
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
        f"the weights' publisher at {metadata.engine_id} was closed or has ended; get a new handle from its owner ({cause})"
    )
