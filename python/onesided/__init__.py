"""One-sided tensor transfers between accelerators: aligned pools, engine, Ray transport, simulated Ascend runtime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onesided.engine import Engine, EngineError, MemType, Status, TransferStatus

# Loaded when first asked for: `onesided.ascend_sim` and the command line must work before the core is loaded, and
# without it.
_HOMES = {
    "Engine": "onesided.engine",
    "EngineError": "onesided.engine",
    "MemType": "onesided.engine",
    "Status": "onesided.engine",
    "TransferStatus": "onesided.engine",
}

__all__ = ["Engine", "EngineError", "MemType", "Status", "TransferStatus"]  # noqa: F822


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'onesided' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
