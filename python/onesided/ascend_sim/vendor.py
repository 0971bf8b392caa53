"""Python access to the vendor's engine library, with the calls that programs written for it make.

    with VendorEngine("127.0.0.1:0") as owner, VendorEngine("127.0.0.1:0") as client:
        owner.register(tensor.data_ptr(), tensor.nbytes, "device")     # accepted, aligned or not
        client.connect(owner.id)     # VendorError: 503900, "... Invalid para. va=0x... page_size=2097152"

Every call uses the C++ symbols of such programs (adxl::AdxlEngine of libllm_datadist.so). On the simulated runtime the
library is onesided's; if the vendor's library is on the library path, it is used instead."""

from __future__ import annotations

import ctypes
import os
import re
import socket
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final

SUCCESS: Final = 0
PARAM_INVALID: Final = 103900
TIMEOUT: Final = 103901
NOT_CONNECTED: Final = 103902
ALREADY_CONNECTED: Final = 103903
FAILED: Final = 503900

_KINDS = {"device": 0, "host": 1}
_OPERATIONS = {"READ": 0, "WRITE": 1}
_DRIVER_LINE = re.compile(r"Invalid para\. va=\S+.*?page_size=\d+")
_PORT_ATTEMPTS = 16


class VendorError(RuntimeError):
    """A call of the vendor's API failed."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {code}" + (f": {text}" if text else ""))
        self.call = call
        #: The vendor's status, e.g. 503900.
        self.code = code
        #: The message of the runtime and the engine; empty if there is none.
        self.text = text

    @property
    def driver_line(self) -> str:
        """The driver's message in ``text`` ("Invalid para. va=... page_size=2097152"); empty if there is none."""
        found = _DRIVER_LINE.search(self.text)
        return found[0] if found else ""


@cache
def _library() -> ctypes.CDLL:
    path = Path(__file__).resolve().parent / "lib" / "libonesided_vendor_client.so"
    if not path.exists():
        raise RuntimeError(
            f"{path} is missing: this installation was built without the engine ABI; run ./do or reinstall"
        )
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    library.onesided_vendor_open.restype = ctypes.c_void_p
    library.onesided_vendor_words.restype = ctypes.c_char_p
    library.onesided_vendor_close.restype = None
    library.onesided_vendor_finalize.restype = None
    for name in ("initialize", "register", "deregister", "connect", "disconnect", "transfer"):
        getattr(library, f"onesided_vendor_{name}").restype = ctypes.c_uint32
    return library


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class VendorEngine:
    """One ``adxl::AdxlEngine``. Confined to one thread at a time. Calls release the GIL.

    ``local_id``: "ip:port" listens there (port 0: a free port); "ip" does not listen. ``options``: as for Initialize().
    Device memory belongs to this thread's current device."""

    def __init__(self, local_id: str, options: Mapping[str, str] | None = None) -> None:
        self._library = _library()
        self._handle = ctypes.c_void_p(self._library.onesided_vendor_open())
        if not self._handle:
            raise MemoryError("the vendor's engine object could not be constructed")
        self.id = self._initialize(local_id, options or {})

    def _initialize(self, local_id: str, options: Mapping[str, str]) -> str:
        flat = [text.encode() for pair in options.items() for text in pair]
        array = (ctypes.c_char_p * (len(flat) + 1))(*flat, None)
        host, colon, port = local_id.rpartition(":")
        choose = bool(colon) and port == "0"
        attempts = _PORT_ATTEMPTS if choose else 1
        while True:
            # Another process may bind the free port before the engine does; then another port is tried.
            attempts -= 1
            name = f"{host}:{_free_port(host.strip('[]'))}" if choose else local_id
            code = self._library.onesided_vendor_initialize(self._handle, name.encode(), array)
            if code == SUCCESS:
                return name
            if code != FAILED or attempts == 0:
                error = VendorError("Initialize", code, self._words())
                self.close()
                raise error

    def register(self, address: int, nbytes: int, kind: str = "device") -> int:
        """Registers memory and returns the handle; ``kind`` is "device" or "host". Misaligned device memory is accepted
        here."""
        if kind not in _KINDS:
            raise ValueError(f"kind={kind!r}: must be 'device' or 'host'")
        handle = ctypes.c_void_p()
        self._call(
            "RegisterMem",
            self._library.onesided_vendor_register,
            ctypes.c_uint64(address),
            ctypes.c_uint64(nbytes),
            ctypes.c_int32(_KINDS[kind]),
            ctypes.byref(handle),
        )
        return handle.value or 0

    def deregister(self, handle: int) -> None:
        """Ends a registration. An unknown handle is not an error, as in the vendor's library."""
        self._call("DeregisterMem", self._library.onesided_vendor_deregister, ctypes.c_void_p(handle))

    def connect(self, remote_id: str, timeout_ms: int = 5000) -> None:
        """Connects. The driver checks all registered device memory of both sides here: 503900."""
        self._call("Connect", self._library.onesided_vendor_connect, remote_id.encode(), ctypes.c_int32(timeout_ms))

    def disconnect(self, remote_id: str, timeout_ms: int = 5000) -> None:
        self._call(
            "Disconnect", self._library.onesided_vendor_disconnect, remote_id.encode(), ctypes.c_int32(timeout_ms)
        )

    def transfer(
        self, remote_id: str, operation: str, items: Iterable[tuple[int, int, int]], timeout_ms: int = 60_000
    ) -> None:
        """Moves (local address, remote address, bytes) items; ``operation`` is "READ" or "WRITE". Blocks until done."""
        if operation not in _OPERATIONS:
            raise ValueError(f"operation={operation!r}: must be 'READ' or 'WRITE'")
        numbers = [number for item in items for number in item]
        array = (ctypes.c_uint64 * len(numbers))(*numbers)
        self._call(
            "TransferSync",
            self._library.onesided_vendor_transfer,
            remote_id.encode(),
            ctypes.c_int32(_OPERATIONS[operation]),
            array,
            ctypes.c_size_t(len(numbers) // 3),
            ctypes.c_int32(timeout_ms),
        )

    def close(self) -> None:
        """Finalizes. Idempotent; no other method may be called afterwards."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.onesided_vendor_finalize(handle)
            self._library.onesided_vendor_close(handle)

    def _call(self, name: str, function: ctypes._NamedFuncPointer, *arguments: object) -> None:
        if not self._handle:
            raise VendorError(name, FAILED, "the engine is closed")
        if code := function(self._handle, *arguments):
            raise VendorError(name, code, self._words())

    def _words(self) -> str:
        return (self._library.onesided_vendor_words(self._handle) or b"").decode(errors="replace")

    def __enter__(self) -> VendorEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()
