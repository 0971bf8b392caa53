"""NIXL's enumerations and exceptions, with NIXL's names and values."""

from __future__ import annotations

import enum

from onesided.compat.opening import log
from onesided.engine import Status


class nixl_mem_t(enum.IntEnum):
    DRAM_SEG = 0
    VRAM_SEG = 1
    BLK_SEG = 2
    OBJ_SEG = 3
    FILE_SEG = 4

    def __str__(self) -> str:
        return f"nixl_mem_t.{self.name}"


class nixl_xfer_op_t(enum.IntEnum):
    NIXL_READ = 0
    NIXL_WRITE = 1


class nixl_status_t(enum.IntEnum):
    NIXL_IN_PROG = 1
    NIXL_SUCCESS = 0
    NIXL_ERR_NOT_POSTED = -1
    NIXL_ERR_INVALID_PARAM = -2
    NIXL_ERR_BACKEND = -3
    NIXL_ERR_NOT_FOUND = -4
    NIXL_ERR_MISMATCH = -5
    NIXL_ERR_NOT_ALLOWED = -6
    NIXL_ERR_REPOST_ACTIVE = -7
    NIXL_ERR_UNKNOWN = -8
    NIXL_ERR_NOT_SUPPORTED = -9


class nixl_thread_sync_t(enum.IntEnum):
    NIXL_THREAD_SYNC_NONE = 0
    NIXL_THREAD_SYNC_STRICT = 1
    NIXL_THREAD_SYNC_RW = 2
    NIXL_THREAD_SYNC_DEFAULT = 0


class nixl_cost_t(enum.IntEnum):
    NIXL_COST_ANALYTICAL_BACKEND = 0


class nixlNotPostedError(Exception): ...


class nixlInvalidParamError(Exception): ...


class nixlBackendError(Exception): ...


class nixlNotFoundError(Exception): ...


class nixlMismatchError(Exception): ...


class nixlNotAllowedError(Exception): ...


class nixlRepostActiveError(Exception): ...


class nixlUnknownError(Exception): ...


class nixlNotSupportedError(Exception): ...


class nixlRemoteDisconnectError(Exception): ...


class nixlCancelledError(Exception): ...


class nixlNoTelemetryError(Exception): ...


_CODES: dict[type[Exception], str] = {
    nixlNotPostedError: "NIXL_ERR_NOT_POSTED",
    nixlInvalidParamError: "NIXL_ERR_INVALID_PARAM",
    nixlBackendError: "NIXL_ERR_BACKEND",
    nixlNotFoundError: "NIXL_ERR_NOT_FOUND",
    nixlMismatchError: "NIXL_ERR_MISMATCH",
    nixlNotAllowedError: "NIXL_ERR_NOT_ALLOWED",
    nixlRepostActiveError: "NIXL_ERR_REPOST_ACTIVE",
    nixlUnknownError: "NIXL_ERR_UNKNOWN",
    nixlNotSupportedError: "NIXL_ERR_NOT_SUPPORTED",
    nixlRemoteDisconnectError: "NIXL_ERR_REMOTE_DISCONNECT",
    nixlCancelledError: "NIXL_ERR_CANCELED",
    nixlNoTelemetryError: "NIXL_ERR_NO_TELEMETRY",
}


def refusal(kind: type[Exception], text: str) -> Exception:
    """The exception to raise; its reason goes to the log too, since callers often print the type only."""
    log.error("nixl: %s: %s", _CODES[kind], text)
    return kind(f"{_CODES[kind]}: {text}")


_BY_STATUS: dict[int, type[Exception]] = {
    Status.PARAM_INVALID: nixlInvalidParamError,
    Status.MISALIGNED: nixlInvalidParamError,
    Status.NOT_FOUND: nixlNotFoundError,
    Status.UNSUPPORTED: nixlNotSupportedError,
    Status.CANCELLED: nixlCancelledError,
    Status.PEER_LOST: nixlRemoteDisconnectError,
    Status.NOT_CONNECTED: nixlRemoteDisconnectError,
}


def of_engine(error: Exception, doing: str) -> Exception:
    """The exception of NIXL for an EngineError."""
    kind = _BY_STATUS.get(getattr(error, "status", -1), nixlBackendError)
    return refusal(kind, f"{doing}: {error}")
