"""`memfabric_hybrid` over the engine of onesided: the calls that SGLang's Ascend back end makes, and Mooncake's transfers.

A session is "host:port" of an engine, so no configuration store is asked; its address is checked and not used.
"""

from __future__ import annotations

import enum
import socket

from onesided.compat.mooncake import TransferEngine as _MooncakeEngine
from onesided.compat.mooncake import TransferNotify
from onesided.compat.opening import open_engine
from onesided.engine import EngineError

__all__ = ["TransferEngine", "TransferNotify"]

_ROLES = ("Prefill", "Decode")


class _TransDataOpType(enum.IntEnum):
    SDMA = 0
    DEVICE_RDMA = 1


class TransferEngine(_MooncakeEngine):
    """As Mooncake's, with memfabric's way to set it up. Thread-safe."""

    TransDataOpType = _TransDataOpType
    _api = "memfabric"

    def __init__(self) -> None:
        super().__init__()
        # SGLang asks for the port before initialize() and makes it part of the session's name. A bound socket that
        # does not listen keeps the port; the engine's listener may still take it.
        self._reserved: socket.socket | None = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("0.0.0.0", 0))
        self._port = int(self._reserved.getsockname()[1])

    def get_rpc_port(self) -> int:
        """The port of this engine, also before initialize()."""
        return super().get_rpc_port() or self._port

    def initialize(  # type: ignore[override]
        self,
        store_url: str,
        session_id: str,
        role: str,
        npu_id: int,
        trans_op_type: _TransDataOpType = _TransDataOpType.SDMA,
    ) -> int:
        """Opens the engine under the session's own address. 0 or -1."""
        if store_url and not store_url.startswith("tcp://"):
            return self._refuse(f"initialize: store_url {store_url!r}: expected tcp://host:port")
        if role not in _ROLES:
            return self._refuse(f"initialize: role {role!r}: expected one of {', '.join(_ROLES)}")
        if not isinstance(npu_id, int) or npu_id < 0:
            return self._refuse(f"initialize: npu_id {npu_id!r}: expected a device number")
        if trans_op_type not in tuple(_TransDataOpType):
            return self._refuse(f"initialize: trans_op_type {trans_op_type!r}: expected SDMA or DEVICE_RDMA")
        arguments = (str(store_url), session_id, role, str(npu_id), str(int(trans_op_type)))
        with self._lock:
            if self._engine is not None:
                if arguments == self._arguments:
                    return 0
                return self._refuse(f"initialize{arguments}: this engine runs already with {self._arguments}")
            try:
                self._engine = open_engine(session_id)
            except EngineError as error:
                return self._refuse(f"initialize: session_id {session_id!r}: {error}")
            self._arguments = arguments
            if self._reserved is not None:
                self._reserved.close()
                self._reserved = None
        return 0

    def initialize_ext(self, *arguments: str) -> int:
        """-1: memfabric has no such call."""
        return self._refuse("initialize_ext: memfabric has no such call; use initialize()")
