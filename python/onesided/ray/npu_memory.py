"""Registration of npu memory by segments. The driver requires 2 MiB boundaries, and one registration of a segment
serves all tensors in it. Aligned pools report their segments. Segments of torch_npu's own allocator are looked up; they
stay registered while they contain a known storage, because afterwards torch_npu may free them without notice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from onesided.engine import Engine
from onesided.ray import device as npu_device
from onesided.ray.memories import EMPTY_ON_DEVICE, UNOWNED, Memories, Span

# Receive buffers are registered by their segments, so blocks need no more than the device's small page.
RECEIVE_ALIGNMENT = 4096


class NpuMemory:
    """The npu memory that one engine has registered. Thread-safe."""

    def __init__(self, engine: Engine, memories: Memories) -> None:
        self._engine = engine
        self._memories = memories
        self._ready = False
        self._lock = threading.Lock()
        self._registered: dict[Any, Any] = {}  # by pool id
        self._ended = 0  # registrations of deleted pools
        self._receive_pools: dict[int, Any] = {}  # by device index

    def span(self, tensor: torch.Tensor) -> Span:
        """The bytes of a dense npu tensor and the segment around them."""
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes == 0:
            return EMPTY_ON_DEVICE
        npu = self._installed()
        address = tensor.data_ptr()
        storage = tensor.untyped_storage()
        pool = npu.pool_of(address)
        if pool is not None:
            self.register(pool)
            return (address, nbytes, 1, address, nbytes, UNOWNED)
        base, size = npu.native_segment(storage.data_ptr())
        return (address, nbytes, 1, base, size, self._memories.number_of(storage))

    def register(self, pool: Any) -> None:
        """An aligned pool (or its id): its segments, now and as it grows. Idempotent."""
        pool_id = tuple(getattr(pool, "id", pool))
        if pool_id in self._registered:
            return
        npu = self._installed()
        with self._lock:
            self._forget_pools_but(set(npu.pools()))
            if pool_id not in self._registered:
                self._registered[pool_id] = npu.register_pool(self._engine, pool_id)

    def _forget_pools_but(self, living: set[Any]) -> None:
        for pool_id in self._registered.keys() - living:
            self._ended += self._registered.pop(pool_id).registrations

    def registrations(self) -> int:
        """Segments of pools registered so far, including ended registrations."""
        with self._lock:
            return self._ended + sum(known.registrations for known in self._registered.values())

    def close(self) -> None:
        """Unsubscribes from all pools. The engine must still be open."""
        with self._lock:
            registered, self._registered = self._registered, {}
        for registration in registered.values():
            registration.close()

    def _installed(self) -> ModuleType:
        """onesided.npu with its decorator installed, which npu tensors require, even if the program has not installed
        it."""
        npu_device.import_torch_npu()  # a receiving actor may not have imported it yet

        from onesided import npu

        if not self._ready:
            npu.install()
            self._ready = True
        return npu

    def new_pool(self, index: int, alignment: int) -> Any:
        """An aligned pool of one npu. ValueError: the alignment violates the pools' rule."""
        self._installed()
        import torch_npu

        with torch.npu.device(index):
            return torch_npu.npu.MemPool(sub_block_alignment=alignment)

    @contextlib.contextmanager
    def receiving(self, index: int) -> Iterator[str]:
        """Tensors that the `with` block allocates on the given device come from the receive pool of that npu."""
        with self._lock:
            if index not in self._receive_pools:
                self._receive_pools[index] = self.new_pool(index, RECEIVE_ALIGNMENT)
            pool = self._receive_pools[index]
        import torch_npu

        npu = self._installed()
        grown_before = npu.pool_stats(pool)["num_device_alloc"]
        with torch.npu.device(index), torch_npu.npu.use_mem_pool(pool):
            yield f"npu:{index}"
        # The pool grew because no free segment was large enough. Without a trim, objects of many sizes would leave one
        # segment for each size.
        if npu.pool_stats(pool)["num_device_alloc"] != grown_before:
            npu.trim(pool)

    def trim(self) -> int:
        """Frees unused segments of the receive pools; returns their bytes."""
        with self._lock:
            pools = list(self._receive_pools.values())
        return sum(self._installed().trim(pool) for pool in pools)

    def deregistrations(self) -> int:
        """Segments of pools whose registration has ended so far."""
        with self._lock:
            return self._ended + sum(known.registrations - known.segments for known in self._registered.values())
