"""The runtime's C functions from Python, for programs that need no torch. A failing call raises with its words."""

from __future__ import annotations

import ctypes

LIBRARY = ctypes.CDLL("libascendcl.so")
LIBRARY.aclGetRecentErrMsg.restype = ctypes.c_char_p
MIB = 1 << 20
HUGE_ONLY, NORMAL_ONLY = 1, 2


class AclFailure(Exception):
    def __init__(self, code: int, words: str) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code


def call(name: str, *arguments: object) -> None:
    code = getattr(LIBRARY, name)(*arguments)
    if code:
        raise AclFailure(code, (LIBRARY.aclGetRecentErrMsg() or b"").decode())


def malloc(nbytes: int, policy: int = HUGE_ONLY) -> int:
    address = ctypes.c_void_p()
    call("aclrtMalloc", ctypes.byref(address), ctypes.c_size_t(nbytes), policy)
    assert address.value
    return address.value


def free(address: int) -> None:
    call("aclrtFree", ctypes.c_void_p(address))


def free_bytes() -> int:
    free_now, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("aclrtGetMemInfo", 1, ctypes.byref(free_now), ctypes.byref(total))
    return free_now.value


def export_key(address: int, nbytes: int, any_process: bool = True) -> bytes:
    key = ctypes.create_string_buffer(65)
    call("aclrtIpcMemGetExportKey", ctypes.c_void_p(address), ctypes.c_size_t(nbytes), key, ctypes.c_size_t(65),
         ctypes.c_uint64(int(any_process)))  # fmt: skip
    return key.value


def import_key(key: bytes) -> int:
    address = ctypes.c_void_p()
    call("aclrtIpcMemImportByKey", ctypes.byref(address), key, ctypes.c_uint64(0))
    assert address.value
    return address.value


def view(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
