"""Weights that are sent again and again belong in memory that is registered once and that readers can map. This is
the pool to put them in, of one device, joined to the transport's engine; nothing of it needs to be remembered later."""

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
    """Memory for tensors of one device whose segments the transport has registered. Thread-safe. Tensors may outlive
    it."""

    def __init__(self, device: str | torch.device = "cpu", *, alignment: int | None = None) -> None:
        """device: "cpu", or an npu with its index ("npu:0"). alignment (bytes) of npu tensors: 2 MiB, as the driver wants
        it of memory that is registered alone. ValueError: another device, one that is not there, or an alignment for the
        cpu. ImportError: no torch_npu, or no runtime for it."""
        name = str(device)
        if not re.fullmatch(r"cpu|npu:\d+", name):
            raise ValueError(f'device={name!r}: a pool is of "cpu" or of one npu, with its index ("npu:0")')
        if name != "cpu":
            extension.load()  # torch.device knows the name "npu" from torch_npu
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
        """`with pool.use():` npu tensors that the block makes on this device, in this thread, come from the pool.
        RuntimeError for a host pool: PyTorch has no such switch for the cpu, use empty(), copy_of() or adopt()."""
        if self.device.type == "cpu":
            raise RuntimeError("a host pool cannot take over torch's allocations; use its empty(), copy_of(), adopt()")
        import torch_npu

        with torch.npu.device(self.device.index), torch_npu.npu.use_mem_pool(self._npu):
            yield self

    def empty(self, *shape: int | Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """A tensor in the pool, its values undefined; the shape as torch.empty takes it. RuntimeError: no memory left."""
        sizes = torch.Size(shape if not shape or isinstance(shape[0], int) else shape[0])
        if self.device.type == "cpu":
            return targets.host_tensors(self._host, [(sizes, dtype)])[0]
        with self.use():
            return torch.empty(sizes, dtype=dtype, device=self.device)

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values (from any device) in the pool, dense."""
        return self.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())

    def adopt(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Moves a module's parameters and buffers into the pool (and so to its device), in place: optimizers and tied
        weights keep working. The state by name, tied weights once each name, sharing memory. ValueError, with nothing
        moved: a meta tensor, or two that are parts of one storage, which moving would part."""
        tensors = {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}
        storages: set[int] = set()
        for tensor in tensors.values():
            storage = tensor.untyped_storage()
            if tensor.is_meta:
                raise ValueError(f"the module has a meta tensor of shape {tuple(tensor.shape)}: give it values first")
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
    """Gives receive memory that no tensor uses back to the system, of the host and of the npus; bytes given back."""
    here = process.peek()
    if here is None:
        return 0
    host = here.receive_pool.trim() if here.receive_pool is not None else 0
    return host + here.npu.trim()
