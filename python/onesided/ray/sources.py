"""Why: what can be read from afar is dense bytes in one kind of memory. Everything else a tensor may be is checked or
made so before anything is registered, because Ray keeps the tensors of a failed object for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from onesided.ray.memories import Span
from onesided.ray.process import Process


class Source:
    """The tensors of one object, ready to be published. A value; `keep_alive` must live as long as the object."""

    def __init__(
        self, spans: list[Span], device: str | None, devices: tuple[str, ...] | None, keep_alive: list
    ) -> None:
        self.spans = spans
        self.device = device
        self.devices = devices
        self.keep_alive = keep_alive


def prepare(tensors: Sequence[torch.Tensor], here: Process, supported: Sequence[str]) -> Source:
    """Checks all tensors, waits for the devices they live on, and describes their memory. Tensors that are not dense
    (strides, lazy conjugates and negatives) are copied as they are now. ValueError names the tensor and what to do."""
    for index, tensor in enumerate(tensors):
        _check(index, tensor, supported)
    types = [tensor.device.type for tensor in tensors]
    dense = [_dense(tensor) for tensor in tensors]
    synchronize(dense)
    packed = [now for now, before in zip(dense, tensors, strict=True) if now is not before]
    kinds = set(types)
    device = next((kind for kind in types if kind != "cpu"), types[0] if types else None)
    return Source(here.spans(dense), device, tuple(types) if len(kinds) > 1 else None, packed)


def synchronize(tensors: Iterable[torch.Tensor]) -> None:
    """Waits until the npus of these tensors have done all that was asked of them: what fills or reads the tensors is
    queued on streams that nobody names here. The host's own work is done when its call returns."""
    for index in {tensor.device.index for tensor in tensors if tensor.device.type == "npu"}:
        torch.npu.synchronize(index)


def _check(index: int, tensor: torch.Tensor, supported: Sequence[str]) -> None:
    if tensor.device.type not in supported:
        raise ValueError(
            f"{_name(index, tensor)} is on {tensor.device}; this process registered HIXL for {' and '.join(supported)}. "
            "Move it, or call onesided.ray.register_hixl_tensor_transport(devices=[...]) with its device."
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ValueError(
            f"{_name(index, tensor)} has layout {tensor.layout}; send its dense parts, or tensor.to_dense()"
        )


def _name(index: int, tensor: torch.Tensor) -> str:
    return f"tensor {index} ({tensor.dtype}, shape {tuple(tensor.shape)})"


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()
