"""Host memory that other processes can map: single buffers, and a pool of reused, pre-faulted ones.

    buffer = onesided.host_pool(64 << 20)            # .addr .nbytes .numpy() .memoryview() .close()

    pool = onesided.HostPool()                       # grows by itself; announces its segments
    block = pool.allocate(1 << 20)                   # same interface as a buffer weights = onesided.host_tensor(pool,
    (4096, 4096), torch.bfloat16)   # a CPU tensor in the pool, no copy

Memory is freed when the last array, memoryview or tensor over it is deleted, even if the buffer or pool was closed
before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onesided._core import HostMemory, HostPool, host_pool

if TYPE_CHECKING:
    import torch

__all__ = ["HostMemory", "HostPool", "host_pool", "host_tensor"]


def host_tensor(pool: HostPool, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor whose storage is a block of the pool; the block is reused when the storage is freed."""
    import torch

    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    # frombuffer keeps the buffer, the buffer keeps the block.
    return torch.frombuffer(pool.allocate(nbytes).memoryview(), dtype=dtype).view(tuple(shape))
