"""The one-sided engine: READ and WRITE of memory that another engine registered.

All names are those of the core. Every function may be called from any thread; see docs/threading.md."""

from onesided._core import (
    BoundItems,
    Engine,
    EngineError,
    ItemResult,
    MemHandle,
    MemType,
    PreparedList,
    RemoteRegions,
    Request,
    Status,
    TransferStatus,
    known_transports,
)

__all__ = [
    "BoundItems",
    "Engine",
    "EngineError",
    "ItemResult",
    "MemHandle",
    "MemType",
    "PreparedList",
    "RemoteRegions",
    "Request",
    "Status",
    "TransferStatus",
    "known_transports",
]
