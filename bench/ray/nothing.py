"""The floor. A transport that moves nothing shows what Ray itself takes for the same calls."""

from __future__ import annotations

from typing import Any

import torch
from ray.experimental import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
    register_tensor_transport,
)

NAME = "NOTHING"


class NothingTransport(TensorTransportManager):
    """Hands out the same buffers again and again, whatever was in the object."""

    def __init__(self) -> None:
        self._buffers: dict[tuple, list[torch.Tensor]] = {}

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[torch.Tensor]) -> TensorTransportMetadata:
        return TensorTransportMetadata([(tensor.shape, tensor.dtype) for tensor in rdt_object], "cpu")

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None):
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> list[torch.Tensor]:
        meta = tensor_transport_metadata.tensor_meta
        key = (len(meta), meta[0] if meta else None)
        if key not in self._buffers:
            self._buffers = {key: [torch.zeros(shape, dtype=dtype) for shape, dtype in meta]}
        return list(self._buffers[key])

    def send_multiple_tensors(self, *_: Any) -> None:
        raise NotImplementedError("one-sided")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: Any) -> None:
        pass

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        pass


def register() -> None:
    """Idempotent."""
    from ray.experimental.rdt import util

    if NAME not in util.transport_manager_info:
        register_tensor_transport(NAME, ["cpu"], NothingTransport, torch.Tensor)
