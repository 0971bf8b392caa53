"""One-sided tensor transfers between accelerators: aligned pools, engine, Ray transport, simulated Ascend runtime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onesided.engine import Engine, EngineError, MemType, Status, TransferStatus
    from onesided.host_memory import HostMemory, HostPool, host_pool, host_tensor

# Loaded on first use: `onesided.ascend_sim` and the command line must work before the core is loaded, and without it.
_HOMES = {
    "Engine": "onesided.engine",
    "EngineError": "onesided.engine",
    "HostMemory": "onesided.host_memory",
    "HostPool": "onesided.host_memory",
    "MemType": "onesided.engine",
    "Status": "onesided.engine",
    "TransferStatus": "onesided.engine",
    "host_pool": "onesided.host_memory",
    "host_tensor": "onesided.host_memory",
}

__all__ = [
    "Engine",
    "EngineError",
    "HostMemory",
    "HostPool",
    "MemType",
    "Status",
    "TransferStatus",
    "host_pool",
    "host_tensor",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'onesided' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
