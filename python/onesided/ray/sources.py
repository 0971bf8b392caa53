"""Prepares an object's tensors for publication. Remote readers need dense bytes in one kind of memory. Other tensors
are refused or copied before anything is registered, because Ray keeps the tensors of a failed object for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from onesided.ray.memories import Span
from onesided.ray.process import Process


@dataclass(frozen=True)
class Source:
    """The tensors of one object, ready to be published. A value."""

    spans: list[Span]
    meta: list[tuple[torch.Size, torch.dtype]]
    device: str | None
    """The type of device; if there are several, the first that is not the cpu."""
    devices: tuple[str, ...] | None
    """One type per tensor, if there are several."""
    keep_alive: list[torch.Tensor]
    """Dense copies of tensors that were not dense; readers read the copies, so they must exist as long as the
    object."""


def prepare(tensors: Sequence[torch.Tensor], here: Process, supported: Sequence[str]) -> Source:
    """Checks all tensors, waits for their devices, and describes their memory. Tensors that are not dense (strides,
    lazy conjugates and negatives) are copied as they are now. ValueError names the tensor and what to do."""
    for index, tensor in enumerate(tensors):
        if (reason := unsupported_reason(tensor, supported)) is not None:
            raise ValueError(f"tensor {index} ({tensor.dtype} on {tensor.device}) {reason}")
    meta = [(tensor.shape, tensor.dtype) for tensor in tensors]
    types = [tensor.device.type for tensor in tensors]
    dense = [_dense(tensor) for tensor in tensors]
    synchronize(dense)
    packed = [now for now, before in zip(dense, tensors, strict=True) if now is not before]
    device = next((kind for kind in types if kind != "cpu"), types[0] if types else None)
    return Source(here.spans(dense), meta, device, tuple(types) if len(set(types)) > 1 else None, packed)


def synchronize(tensors: Iterable[torch.Tensor]) -> None:
    """Blocks until the npus of these tensors have done all queued work, because the streams that fill or read the
    tensors are not known here. Work of the host is done when its call returns."""
    for index in {tensor.device.index for tensor in tensors if tensor.device.type == "npu"}:
        torch.npu.synchronize(index)


def unsupported_reason(tensor: torch.Tensor, supported: Sequence[str]) -> str | None:
    """The reason why a tensor cannot be read remotely, and what to send in its place; None if it can."""
    kind = tensor.device.type
    if kind not in supported:
        known = kind in ("npu", "cpu")
        cure = f'register_hixl_tensor_transport(devices=[..., "{kind}"])' if known else "move it to the cpu or an npu"
        return f"is not on a device this process registered HIXL for ({' and '.join(supported)}); {cure}"
    if tensor.is_nested:
        return "is nested; send tensor.unbind(), a list of dense ones"
    if tensor.layout is not torch.strided:
        return f"has layout {tensor.layout}; send its dense parts, or tensor.to_dense()"
    if tensor.is_quantized:
        return "is quantized; send tensor.int_repr() with its scale, or tensor.dequantize()"
    return None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()
