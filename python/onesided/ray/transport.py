"""The transport class for Ray. Ray chooses the thread of each method (see the table in docs/ray.md), so all state here
is guarded by locks; the bookkeeping is the core's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from ray.experimental.rdt import util as rdt
from ray.experimental.rdt.tensor_transport_manager import FetchRequest, TensorTransportManager

from onesided.ray import failures, process, sources, statistics, targets
from onesided.ray.guard import BACKEND
from onesided.ray.metadata import HixlCommunicatorMetadata, HixlTransportMetadata


@dataclass
class HixlFetchRequest(FetchRequest):
    """The fetch of an object. Its destructor first stops the transfer and then frees the buffers, because Ray may drop
    a request without waiting for it."""

    fetch: Any = field(default=None, repr=False)
    metadata: Any = field(default=None, repr=False)
    noted: bool = field(default=False, repr=False)

    def note_end(self) -> None:
        """Adds it to the statistics, once."""
        if not self.noted:
            self.noted = True
            statistics.note_fetch(_record(self.obj_id, self.metadata, self.fetch))

    def __del__(self) -> None:
        # Before `tensors` are freed: no byte may move into freed memory.
        if self.fetch is not None:
            self.fetch.abort()
            self.note_end()


def _record(obj_id: str, metadata: HixlTransportMetadata, fetch: Any = None) -> statistics.FetchRecord:
    """The record of a fetch; without a fetch, of a failed start."""
    nbytes, elapsed_us, state = (0, 0, "FAILED") if fetch is None else (fetch.nbytes, fetch.elapsed_us, fetch.state)
    return statistics.FetchRecord(obj_id, metadata.engine_id, len(metadata.tensor_meta), nbytes, elapsed_us, state)


class HixlTensorTransport(TensorTransportManager):
    """One-sided READs through onesided's engine. Thread-safe; one per process, made by Ray."""

    def tensor_transport_backend(self) -> str:
        return BACKEND

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Called for every call of such a method, so it sends no message: an actor with tensor transport registers HIXL
        when it is created, and if its engine cannot start, the object itself carries the error."""
        return bool(actor._ray_enable_tensor_transport)

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None):
        return HixlCommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> HixlTransportMetadata:
        try:
            return self._publish(obj_id, rdt_object)
        except BaseException:
            _forget_failed_object(obj_id)
            raise

    def _publish(self, obj_id: str, tensors: list[torch.Tensor]) -> HixlTransportMetadata:
        here = process.current()
        source = sources.prepare(tensors, here, rdt.transport_manager_info[BACKEND].devices)
        description, version = here.exchange.publish(obj_id, source.spans)
        if source.keep_alive:
            # A retried task describes the same object again: the first copies are the published ones.
            here.packed.setdefault(obj_id, source.keep_alive)
        return HixlTransportMetadata(source.meta, source.device, description, here.engine_id, version, source.devices)

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: HixlTransportMetadata,
        communicator_metadata: Any = None,
        target_buffers: list[torch.Tensor] | None = None,
    ) -> HixlFetchRequest:
        """Starts the transfer; blocks only if it must connect first. RayDirectTransportError names object, owner and
        cause. The identity of the buffers is preserved."""
        metadata = tensor_transport_metadata
        if not isinstance(metadata, HixlTransportMetadata):
            raise TypeError(f"object {obj_id} was not sent by HIXL: its metadata is a {type(metadata).__name__}")
        try:
            with failures.as_transport_errors(obj_id, metadata.engine_id):
                tensors, fetch = _start(obj_id, metadata, target_buffers)
        except Exception:
            statistics.note_fetch(_record(obj_id, metadata))
            raise
        return HixlFetchRequest(obj_id=obj_id, tensors=tensors, fetch=fetch, metadata=metadata)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[torch.Tensor]:
        """timeout in seconds, negative for none. TimeoutError: not finished in time. RayDirectTransportError: it failed
        or was aborted."""
        timeout_ms = None if timeout is None or timeout < 0 else max(0, round(timeout * 1000))
        state = fetch_request.fetch.wait(timeout_ms)
        if state == "RUNNING":
            raise TimeoutError(f"HIXL object {fetch_request.obj_id} has not arrived within {timeout} s")
        fetch_request.note_end()
        failures.raise_unless_done(state, fetch_request.fetch, fetch_request.obj_id, fetch_request.metadata.engine_id)
        return fetch_request.tensors

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: HixlTransportMetadata,
        communicator_metadata: Any = None,
        target_buffers: list[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        request = self.fetch_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
        return self.wait_fetch_complete(request)

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        raise NotImplementedError("HIXL is one-sided: the receiver reads, and the sender must not be called")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[torch.Tensor]) -> None:
        here = process.peek()
        if here is not None:
            here.exchange.release(obj_id)
            here.packed.pop(obj_id, None)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Blocks until no byte can be written into the buffers of the object's running transfers; later ones are not
        affected."""
        here = process.peek()
        if here is not None:
            here.exchange.abort(obj_id)


def _start(
    obj_id: str, metadata: HixlTransportMetadata, buffers: list[torch.Tensor] | None
) -> tuple[list[torch.Tensor], Any]:
    """The targets, new or the user's, and the fetch into them."""
    here = process.current()
    if buffers:
        targets.check(buffers)
        sources.synchronize(buffers)  # what still reads or writes them
        return buffers, here.fetch(obj_id, metadata, here.spans(buffers))
    buffers = targets.allocate(metadata, here)
    return buffers, here.fetch(obj_id, metadata, here.receive_spans(buffers))


def _forget_failed_object(obj_id: str) -> None:
    """Ray has stored the tensors before it requests their metadata, and keeps them if that fails."""
    from ray._private.worker import global_worker

    store = global_worker.rdt_manager.rdt_store
    if store.has_object(obj_id):
        store.pop_object(obj_id)
