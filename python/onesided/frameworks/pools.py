"""One aligned pool per device for the framework shims, made on first use."""

from __future__ import annotations

import threading
from typing import Any

ALIGNMENT = 2 << 20

_lock = threading.Lock()
_pools: dict[int, Any] = {}


def pool_on(device_index: int) -> Any:
    """The shims' own 2 MiB pool on an NPU. Installs onesided.npu. ImportError: it cannot be installed."""
    import onesided.npu

    onesided.npu.install()
    import torch
    import torch_npu

    with _lock:
        if device_index not in _pools:
            with torch.npu.device(device_index):
                _pools[device_index] = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
        return _pools[device_index]


def release() -> None:
    """Releases the shims' pools; their memory is freed when the last tensor in them is deleted."""
    with _lock:
        _pools.clear()
