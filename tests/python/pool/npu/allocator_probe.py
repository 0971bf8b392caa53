"""bindings/torch_npu/probe from Python. Torch and torch_npu must have been imported."""

from __future__ import annotations

import ctypes
from pathlib import Path

from onesided.npu import extension

_POINTERS = ("allocate", "allocate_aligned", "address", "block_handle", "base_allocation", "import_handle")


class Probe:
    """`probe.name(...)` calls probe_name(...); RuntimeError is what the allocator threw."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(_library_path()))
        self._library.probe_error.restype = ctypes.c_char_p
        self._library.probe_share.restype = ctypes.c_uint64
        for name in _POINTERS:
            getattr(self._library, f"probe_{name}").restype = ctypes.c_void_p

    def __getattr__(self, name):
        function = getattr(self._library, f"probe_{name}")

        def call(*arguments):
            wide = [ctypes.c_uint64(one) if isinstance(one, int) else one for one in arguments]
            answer = function(*wide)
            if said := self._library.probe_error():
                raise RuntimeError(said.decode())
            return answer

        return call


def _library_path() -> Path:
    root = Path(__file__).resolve().parents[4]
    name = f"liballocator_probe_{extension.load().built_for.replace('.', '_')}.so"
    built = sorted(root.glob(f"build/*/bindings/torch_npu/{name}"), key=lambda path: path.stat().st_mtime)
    assert built, f"{name} is not built: configure with ONESIDED_BUILD_TESTS=ON where torch_npu is installed"
    return built[-1]
