"""A pool for tensors that are sent repeatedly, such as weights: its memory is registered once with the transport's
engine, and readers can map it. A pool belongs to one device; no later calls are necessary."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from onesided import _core
from onesided.npu import extension
from onesided.ray import device as npu_device
from onesided.ray import process, targets

_ASCEND_PAGE = 2 << 20


class TransferPool:
    """Memory for tensors of one device, with segments that the transport has registered. Thread-safe. Tensors may
    outlive the pool."""

    def __init__(self, device: str | torch.device = "cpu", *, alignment: int | None = None) -> None:
        """device: "cpu", or an npu with its index ("npu:0"). alignment of npu tensors in bytes: default 2 MiB, which
        the driver requires of separately registered memory. ValueError: another or missing device, or an alignment for
        the cpu. ImportError: no torch_npu, or no runtime for it."""
        name = str(device)
        if not re.fullmatch(r"cpu|npu:\d+", name):
            raise ValueError(f'device={name!r}: expected "cpu" or one npu with its index ("npu:0")')
        if name != "cpu":
            extension.load()  # torch.device accepts the name "npu" after torch_npu is imported
            npu_device.parse(name)
        self.device = torch.device(device)
        here = process.current()
        if self.device.type == "cpu":
            if alignment is not None:
                raise ValueError("alignment is for npu pools; host tensors start on 4 KiB boundaries")
            self._host = here.receive_pool or _core.ReceivePool(here.exchange)
        else:
            self._npu = here.npu.new_pool(self.device.index, _ASCEND_PAGE if alignment is None else alignment)
            here.npu.register(self._npu)

    @contextlib.contextmanager
    def use(self) -> Iterator[TransferPool]:
        """`with pool.use():` npu tensors that the block allocates on this device, in this thread, come from the pool.
        RuntimeError for a host pool, because PyTorch has no such function for the cpu: use empty(), copy_of() or
        adopt()."""
        if self.device.type == "cpu":
            raise RuntimeError("a host pool cannot serve torch's allocations; use its empty(), copy_of(), adopt()")
        import torch_npu

        with torch.npu.device(self.device.index), torch_npu.npu.use_mem_pool(self._npu):
            yield self

    def empty(self, *shape: int | Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A tensor in the pool with undefined values; the shape as for torch.empty. RuntimeError: no memory left."""
        sizes = torch.Size(shape if not shape or isinstance(shape[0], int) else shape[0])
        if self.device.type == "cpu":
            return targets.host_tensors(self._host, [(sizes, dtype)])[0]
        with self.use():
            return torch.empty(sizes, dtype=dtype, device=self.device)

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A dense copy of the tensor (from any device) in the pool."""
        return self.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())

    def adopt(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Moves a module's parameters and buffers into the pool (and therefore to its device), in place: optimizers and
        tied weights keep working. Returns the state by name; tied weights appear under each name and share memory.
        ValueError, with nothing moved: a meta tensor, or two tensors in one storage, which moving would separate."""
        tensors = {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}
        storages: set[int] = set()
        for tensor in tensors.values():
            storage = tensor.untyped_storage()
            if tensor.is_meta:
                raise ValueError(f"the module has a meta tensor of shape {tuple(tensor.shape)}: initialize it first")
            if storage.nbytes() and storage.data_ptr() in storages:
                raise ValueError(
                    "two of the module's tensors are views of one storage; make them one parameter, or clone() one"
                )
            storages.add(storage.data_ptr())
        for tensor in tensors.values():
            tensor.data = self.copy_of(tensor)
        return {name: value.detach() for name, value in module.state_dict(keep_vars=True).items()}


def pool(device: str | torch.device = "cpu", **options: Any) -> TransferPool:
    """A TransferPool; its options are TransferPool's."""
    return TransferPool(device, **options)


def trim() -> int:
    """Frees receive memory, of the host and of the npus, that no tensor uses; returns its bytes."""
    here = process.peek()
    if here is None:
        return 0
    host = here.receive_pool.trim() if here.receive_pool is not None else 0
    return host + here.npu.trim()
