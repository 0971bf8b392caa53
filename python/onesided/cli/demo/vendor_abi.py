"""Why: one place knows how the demo talks to an engine as a program written for the vendor's library would: through
hixl::Hixl of libcann_hixl.so, by a client of a few lines of C++."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onesided

_CLIENT = "libonesided_hixl_client.so"
_NAMES = {103900: "PARAM_INVALID", 103901: "TIMEOUT", 103902: "NOT_CONNECTED", 503900: "FAILED"}


@dataclass(frozen=True)
class Outcome:
    """How registering and connecting went. A value."""

    connected: bool
    code: int  # 0, or the vendor's status
    text: str  # what a caller of the engine learns
    driver_line: str  # what the driver logged of it; empty when it had nothing to say


class _Range(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("nbytes", ctypes.c_uint64)]


def register_and_connect(ranges: Sequence[tuple[int, int]]) -> Outcome:
    """Registers (address, bytes) of the current device's memory with one engine and connects a second one to it."""
    client = ctypes.CDLL(str(Path(onesided.__file__).parent / "ascend_sim" / "lib" / _CLIENT))
    run = client.onesided_hixl_register_and_connect
    run.restype = ctypes.c_uint32
    call, driver = ctypes.create_string_buffer(64), ctypes.create_string_buffer(4096)
    table = (_Range * len(ranges))(*(_Range(*each) for each in ranges))
    code = run(
        f"127.0.0.1:{_free_port()}".encode(), table, ctypes.c_size_t(len(ranges)),
        call, ctypes.c_size_t(len(call)), driver, ctypes.c_size_t(len(driver)),
    )  # fmt: skip
    if code == 0:
        return Outcome(True, 0, "connected", "")
    name = _NAMES.get(code, "failed")
    return Outcome(
        False, code, f"{call.value.decode()}: {name} ({code})", driver.value.decode(errors="replace").strip()
    )


def _free_port() -> int:
    """A port that nobody listens on now: vendor-style engines cannot be asked to choose one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
