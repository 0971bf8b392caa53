"""What the drop-ins share: an engine for a host, memory of either kind, and reasons in the log."""

from __future__ import annotations

import logging
import os
import socket

from onesided.engine import Engine, EngineError, MemHandle, Status

log = logging.getLogger("onesided.compat")

# Where an API names no address of its own.
HOST_VARIABLE = "ONESIDED_HOST"


def default_host() -> str:
    """ONESIDED_HOST, or the address of this machine that its default route uses, or loopback."""
    if host := os.environ.get(HOST_VARIABLE):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a datagram socket sends nothing when it connects
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def host_of(session: str) -> str:
    """The host in "host", "host:port", "[v6]:port" or "host:port:npu_N"."""
    if session.startswith("["):
        return session[: session.index("]") + 1] if "]" in session else session
    return session.split(":", 1)[0]


def open_engine(address: str, options: dict[str, str] | None = None) -> Engine:
    """An engine on "host:port", port 0 for a free one, that connects by itself. EngineError: as Engine()."""
    return Engine(address, {"auto_connect": "1", **(options or {})})


def register(engine: Engine, address: int, nbytes: int, kind: str | None) -> MemHandle:
    """Registers memory as "host" or "device"; None: as what it is. EngineError: as Engine.register_mem()."""
    if kind is not None:
        return engine.register_mem(address, nbytes, kind)
    try:
        return engine.register_mem(address, nbytes, "device")
    except EngineError as error:
        # MISALIGNED, overlaps and limits speak of device memory; everything else says that it is none.
        if error.status in (Status.MISALIGNED, Status.RESOURCE_EXHAUSTED, Status.BUSY):
            raise
    return engine.register_mem(address, nbytes, "host")
