"""Why: npu memory is registered by the segment, never by the tensor: the driver asks for 2 MiB boundaries, and a segment
is registered once for all the tensors that will ever lie in it. Aligned pools announce their segments; segments of
torch_npu's own allocator are looked up and live until it frees them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from onesided.engine import Engine
from onesided.ray.memories import EMPTY_ON_DEVICE, Span

# Receive buffers are registered by their segments, so blocks need no more than the device's small page.
RECEIVE_ALIGNMENT = 4096


class NpuMemory:
    """The npu memory that one engine has registered. Thread-safe."""

    def __init__(self, engine: Engine, gone: Any) -> None:
        self._engine = engine
        self._gone = gone
        self._lock = threading.Lock()
        self._registered: dict[Any, Any] = {}  # by pool id
        self._receive_pools: dict[int, Any] = {}  # by device index

    def span(self, tensor: torch.Tensor) -> Span:
        """The bytes of a dense npu tensor and the segment around them."""
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes == 0:
            return EMPTY_ON_DEVICE
        from onesided import npu

        address = tensor.data_ptr()
        pool = npu.pool_of(address)
        if pool is not None:
            self._register(pool)
            return (address, nbytes, 1, address, nbytes, 0)
        base, size, number = npu.native_segment(address, self._gone)
        return (address, nbytes, 1, base, size, number)

    def _register(self, pool: Any) -> None:
        from onesided import npu

        if pool in self._registered:
            return
        with self._lock:
            if pool not in self._registered:
                self._registered[pool] = npu.register_pool(self._engine, pool)

    @contextlib.contextmanager
    def receiving(self, index: int) -> Iterator[str]:
        """Tensors that the block makes on the device it is given come from the receive pool of that npu."""
        import torch_npu

        with self._lock:
            pool = self._receive_pools.get(index)
            if pool is None:
                with torch.npu.device(index):
                    pool = torch_npu.npu.MemPool(sub_block_alignment=RECEIVE_ALIGNMENT)
                self._receive_pools[index] = pool
        with torch.npu.device(index), torch_npu.npu.use_mem_pool(pool):
            yield f"npu:{index}"
