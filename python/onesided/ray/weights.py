"""Why: weights are updated in place while others read them, and nobody tells a one-sided reader that it came in the
middle. Here the owner stamps its memory with a version, odd while it writes, and a reader takes a copy only if the
stamp was the same whole version before and after it. Ray carries a small handle, once; updates cost no message."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from onesided import _core
from onesided.ray import failures, process, sources, targets
from onesided.ray.metadata import HixlTransportMetadata

# While the owner writes there is nothing to wait for but time: pauses between looks at its stamp, in seconds.
_FIRST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.02


@dataclass(frozen=True)
class WeightsHandle:
    """Where the weights are and how to read them: pickles small, goes wherever Ray carries values. Dies with the
    publisher."""

    names: tuple[str, ...]
    weights: HixlTransportMetadata
    stamp: HixlTransportMetadata


class WeightPublisher:
    """Tensors that their owner updates in place and anybody with the handle may read. One writer at a time; thread-safe
    otherwise. The tensors must be dense and must not be replaced or resized while it lives."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Registers the tensors' memory (once: an aligned pool's segments already are). ValueError: not dense."""
        for name, tensor in tensors.items():
            if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
                raise ValueError(f"weight {name!r} is not dense: readers could not see updates of it")
        self._here = process.current()
        self._tensors = dict(tensors)
        self._stamp = _core.VersionStamp()
        self._id = f"weights-{uuid.uuid4().hex}"
        self._writer = threading.Lock()
        stamp_span = (self._stamp.address, self._stamp.nbytes, 0, self._stamp.address, self._stamp.nbytes, 0)
        stamp = self._publish("stamp", [stamp_span], [(torch.Size([self._stamp.nbytes]), torch.uint8)], "cpu", None)
        try:
            values = list(self._tensors.values())
            source = sources.prepare(values, self._here, ("npu", "cpu"))
            meta = [(tensor.shape, tensor.dtype) for tensor in values]
            weights = self._publish("weights", source.spans, meta, source.device, source.devices)
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
    def update(self) -> Iterator[dict[str, torch.Tensor]]:
        """`with publisher.update() as weights:` write into them. Readers refuse them meanwhile; afterwards, once the
        devices have done the work, they are the next version. If the block raises, they stay refused until an update
        succeeds, for they may be half written."""
        with self._writer:
            self._stamp.begin()
            yield self._tensors
            sources.synchronize(self._tensors.values())
            self._stamp.end()

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


class WeightReader:
    """Copies whole versions of published weights into buffers of its own. Confined to one thread at a time."""

    def __init__(self, handle: WeightsHandle, *, double_buffer: bool = True) -> None:
        """double_buffer: the last accepted version stays intact while the next one is read, for twice the memory.
        Without it, a pull() that fails leaves the buffers undefined."""
        self._here = process.current()
        self._handle = handle
        self._id = f"read-{uuid.uuid4().hex}"
        self._stamp = torch.empty(handle.stamp.tensor_meta[0][0], dtype=torch.uint8)
        self._buffers = [targets.allocate(handle.weights, self._here) for _ in range(2 if double_buffer else 1)]
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
                self._read(self._handle.weights, self._buffers[-1], deadline)
                if self._read_stamp(deadline) == before:
                    self._buffers.reverse()
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
        self._read(self._handle.stamp, [self._stamp], deadline)
        return _core.VersionStamp.read(self._stamp.numpy().tobytes())

    def _read(self, metadata: HixlTransportMetadata, buffers: list[torch.Tensor], deadline: float) -> None:
        here = self._here
        with failures.as_transport_errors(self._id, metadata.engine_id):
            fetch = here.exchange.fetch(
                self._id,
                metadata.engine_id,
                metadata.meta_version,
                metadata.serialized_mem_descs,
                here.spans(buffers),
                here.connect_timeout_ms,
                here.transfer_timeout_ms,
            )
        state = fetch.wait(max(0, round(1000 * (deadline - time.monotonic()))))
        if state == "RUNNING":
            fetch.abort()
            raise TimeoutError(f"reading weights from {metadata.engine_id} took longer than the time given")
        failures.raise_unless_done(state, fetch, self._id)


__all__ = ["WeightPublisher", "WeightReader", "WeightsHandle"]
