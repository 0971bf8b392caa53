"""Remembers the npu that an actor has selected. The current npu is a property of a thread, and Ray runs an actor's
__init__, its methods and its receives on three different threads, but objects must be received on the actor's
device."""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from types import ModuleType

_lock = threading.Lock()
_explicit: int | None = None
_last_set: int | None = None
_watched: set[int] = set()


def _npu():
    """torch.npu, if this process has imported torch_npu; otherwise None."""
    return sys.modules["torch_npu"].npu if "torch_npu" in sys.modules else None


def parse(device: int | str) -> int:
    """The index of an npu given as 1 or "npu:1", without loading anything. ValueError: neither, or, if torch_npu is
    loaded, not an npu of this process."""
    if isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        named = re.fullmatch(r"npu:(\d+)", str(device))
        index = int(named[1]) if named else -1
    if index < 0:
        raise ValueError(f'device={device!r}: give the npu\'s index (1) or name ("npu:1")')
    npu = _npu()
    if npu is not None and index >= (count := npu.device_count()):
        raise ValueError(f"device={device!r}: this process has {count} npu{'s' if count != 1 else ''}, counted from 0")
    return index


def choose(index: int) -> None:
    """From now on npu objects are received on this device."""
    global _explicit
    _explicit = index


def remember_current() -> None:
    """Uses the calling thread's current npu, if it has one, as the actor's, and tracks torch.npu.set_device from now
    on. Call it from the actor's own code, not from a thread of Ray's."""
    global _last_set
    npu = _npu()
    if npu is None:
        return
    watch()
    if npu.is_initialized():
        _last_set = npu.current_device()


def watch() -> None:
    """Tracks torch.npu.set_device in all threads, because an actor's __init__ may select its device after
    registering."""
    npu = _npu()
    with _lock:
        if npu is None or id(npu) in _watched:
            return
        _watched.add(id(npu))
    set_device = npu.set_device

    @functools.wraps(set_device)
    def remembering_set_device(device) -> None:
        global _last_set
        set_device(device)
        _last_set = npu.current_device()

    npu.set_device = remembering_set_device
    import torch

    if getattr(torch, "npu", None) is not None:
        torch.npu.set_device = remembering_set_device


def index() -> int:
    """The device that npu objects are received on: the selected one, otherwise the last one set, otherwise the only one
    in use, otherwise the calling thread's."""
    if _explicit is not None:
        return _explicit
    if _last_set is not None:
        return _last_set
    npu = _loaded_npu()
    in_use = [i for i in range(npu.device_count()) if npu.memory_reserved(i) > 0]
    return in_use[0] if len(in_use) == 1 else npu.current_device()


def import_torch_npu() -> ModuleType:
    """torch_npu, imported if necessary. torch_npu disables PyTorch's autoload during its import and leaves it disabled
    if the import fails; child processes would inherit that setting. ImportError: no torch_npu, or no runtime for it."""
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
    try:
        import torch_npu
    except BaseException:
        if autoload is None:
            os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
        else:
            os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = autoload
        raise
    return torch_npu


def _loaded_npu():
    """torch.npu; a receiving actor may not have loaded torch_npu yet. RuntimeError: this process has no npu."""
    try:
        torch_npu = import_torch_npu()
    except ImportError as error:
        raise RuntimeError(
            f"npu tensors cannot be received here, because this process has no npu ({error}). Load torch_npu, or fetch them onto "
            'the cpu: ray.experimental.rdt.set_target_device_for_ref(ref, "cpu") before ray.get(ref)'
        ) from error
    watch()
    return torch_npu.npu
