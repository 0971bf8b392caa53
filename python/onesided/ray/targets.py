"""Receive buffers. New pages cost ten times as much as a copy, and each new buffer needs a registration, so receive
buffers come from persistent pools: registered once, faulted in once, reused when the last tensor in them is freed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import torch

from onesided import _core
from onesided.ray import device as npu_device
from onesided.ray.metadata import HixlTransportMetadata
from onesided.ray.npu_memory import RECEIVE_ALIGNMENT
from onesided.ray.process import Process


def allocate(
    metadata: HixlTransportMetadata, here: Process, device: str | torch.device | None = None
) -> list[torch.Tensor]:
    """One new tensor for each of the object's, on `device`, by default on the same kind of device; npu tensors on the
    actor's own npu. The memory may be written immediately. RuntimeError: no npu in this process, or no memory left.
    ValueError: a device that is neither the cpu nor an npu."""
    kind, _, number = str(device or "").partition(":")
    if kind not in ("", "cpu", "npu"):
        raise ValueError(f'device={str(device)!r}: "cpu", "npu", or an npu with its index ("npu:1")')
    npu = npu_device.parse(str(device)) if number else None
    kinds = [kind or metadata.device_of(index) for index in range(len(metadata.tensor_meta))]
    tensors: list[torch.Tensor | None] = [None] * len(kinds)
    for kind in set(kinds):
        places = [index for index, other in enumerate(kinds) if other == kind]
        wanted = [metadata.tensor_meta[index] for index in places]
        made = _on_cpu(wanted, here) if kind == "cpu" else _on_npu(wanted, here, npu)
        for index, tensor in zip(places, made, strict=True):
            tensors[index] = tensor
    return tensors  # type: ignore[return-value]


def _on_cpu(wanted: Sequence[tuple[torch.Size, torch.dtype]], here: Process) -> list[torch.Tensor]:
    if here.receive_pool is None:
        return [torch.empty(shape, dtype=dtype) for shape, dtype in wanted]
    return host_tensors(here.receive_pool, wanted)


def host_tensors(pool: _core.ReceivePool, wanted: Sequence[tuple[torch.Size, torch.dtype]]) -> list[torch.Tensor]:
    """Host tensors with undefined values in a registered pool; a block is reused when the last tensor in it is
    freed."""
    counts = [math.prod(shape) for shape, _ in wanted]
    blocks = iter(pool.allocate([n * dtype.itemsize for n, (_, dtype) in zip(counts, wanted, strict=True) if n]))
    return [
        _tensor(next(blocks), *one, count) if count else torch.empty(one[0], dtype=one[1])
        for count, one in zip(counts, wanted, strict=True)
    ]


def _tensor(block: _core.ReceiveBlock, shape: torch.Size, dtype: torch.dtype, count: int) -> torch.Tensor:
    flat = torch.frombuffer(block, dtype=dtype, count=count)
    return flat if len(shape) == 1 else flat.view(shape)


def _on_npu(wanted: Sequence[tuple[torch.Size, torch.dtype]], here: Process, index: int | None) -> list[torch.Tensor]:
    with here.npu.receiving(npu_device.index() if index is None else index) as device:
        _make_room(wanted, device)
        tensors = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in wanted]
    # A block may have belonged to a tensor that was freed with work on it still queued: streams order kernels, but not
    # a READ.
    torch.npu.current_stream(device).synchronize()
    return tensors


def _make_room(wanted: Sequence[tuple[torch.Size, torch.dtype]], device: str) -> None:
    """Ensures that the pool has one free block for the whole object, before the object's tensors are allocated from it.
    Blocks allocated one by one would make many segments, and the next equal object, allocated from the remains, a few
    more; this way one segment is registered, with the first object."""
    sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in wanted)
    nbytes = sum(-(-nbytes // RECEIVE_ALIGNMENT) * RECEIVE_ALIGNMENT for nbytes in sizes)
    # The tensors may still fit separately if the whole object does not.
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(nbytes, dtype=torch.uint8, device=device)


def check(tensors: Sequence[torch.Tensor]) -> None:
    """ValueError: a buffer that is not dense."""
    for index, tensor in enumerate(tensors):
        if not tensor.is_contiguous():
            raise ValueError(f"target buffer {index} is not contiguous; receive into a dense one and copy")
