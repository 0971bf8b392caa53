"""The one-sided engine: READ and WRITE of memory that another engine registered.

Every name here is the core's own; docs/threading.md says what may be called from where (everything, from any thread).
"""

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
