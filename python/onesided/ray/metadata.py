"""The metadata that Ray sends from the owner of an object to its readers. It has plain fields, because Ray pickles it;
the one field from the C++ core (`serialized_mem_descs`) is opaque bytes that only the core's decoder reads."""

from __future__ import annotations

from dataclasses import dataclass

from ray.experimental.rdt.tensor_transport_manager import CommunicatorMetadata, TensorTransportMetadata


@dataclass
class HixlCommunicatorMetadata(CommunicatorMetadata):
    """Empty, because a reader needs only the object's own metadata."""


@dataclass
class HixlTransportMetadata(TensorTransportMetadata):
    """One object. `tensor_meta` and `tensor_device` are Ray's; an object of several device types has `tensor_devices`,
    one type per tensor, and as `tensor_device` the first that is not the cpu."""

    serialized_mem_descs: bytes = b""
    engine_id: str = ""
    meta_version: int = 0
    tensor_devices: tuple[str, ...] | None = None

    # Ray uses it as a key of sets; two objects are never equal.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def device_of(self, index: int) -> str:
        """The device type of one tensor."""
        if self.tensor_devices is not None:
            return self.tensor_devices[index]
        return self.tensor_device or "cpu"
