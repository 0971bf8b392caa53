"""vllm-ascend's `align_memory(tensor, alignment)`, the pad-and-slice function that it has in four places."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def align_memory(tensor: torch.Tensor, alignment: int) -> torch.Tensor:
    """The part of a flat tensor from its first multiple of `alignment` bytes on, sharing its storage.

    A tensor from an aligned pool starts on the boundary already and is returned completely. Others lose up to alignment
    - 1 bytes. ValueError: not one-dimensional and contiguous, `alignment` is not a power of two, or no element starts
    on a boundary."""
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment is {alignment}: it must be a power of two")
    if tensor.dim() != 1 or not tensor.is_contiguous():
        raise ValueError(f"a flat, contiguous tensor is needed, not one of shape {tuple(tensor.shape)}")
    skip_bytes = -tensor.data_ptr() % alignment
    if skip_bytes % tensor.element_size() or skip_bytes // tensor.element_size() >= max(tensor.numel(), 1):
        raise ValueError(f"no element of this tensor of {tensor.numel()} starts at a multiple of {alignment} bytes")
    return tensor[skip_bytes // tensor.element_size() :]
