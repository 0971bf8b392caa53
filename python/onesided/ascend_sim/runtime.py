"""Enables the simulated runtime for this process and its children."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onesided.ascend_sim.real_cann import RealCannError, find_real_cann, loaded_runtimes

# The runtime is first, because the others depend on it.
_LIBRARIES = (
    "libascendcl.so",
    "libhccl.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
    "libopapi.so",
    "libnnopbase.so",
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SimError(RuntimeError):
    """The simulated runtime cannot be enabled, or a query failed."""


@dataclass(frozen=True)
class DeviceStats:
    """Counters of this process's use of a device; all sizes in bytes."""

    mallocs: int
    frees: int
    used_bytes: int
    peak_bytes: int
    capacity_bytes: int
    machine_used_bytes: int


class _RawStats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in DeviceStats.__dataclass_fields__]


def _folder() -> Path:
    return Path(__file__).resolve().parent


def library_folder() -> Path:
    """The folder of the simulator's shared libraries. Raises SimError if this installation was built without them."""
    folder = _folder() / "lib"
    missing = [name for name in _LIBRARIES if not (folder / name).exists()]
    if missing:
        raise SimError(
            f"the simulated runtime is not built: {folder / missing[0]} is missing; run ./do or reinstall onesided"
        )
    return folder


def parse_bytes(size: int | str) -> int:
    """Converts 8589934592, "8GiB" or "512M" to bytes. Raises ValueError for other values and for sizes below one 2 MiB
    page."""
    if isinstance(size, int) and not isinstance(size, bool):
        count = size
    else:
        match = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(?:iB|B)?\s*", str(size), re.IGNORECASE)
        if not match:
            raise ValueError(f"{size!r} is not a size in bytes (write 8589934592, '8GiB' or '512M')")
        count = int(match.group(1)) * _UNITS[match.group(2).upper()]
    if not 1 << 21 <= count < 1 << 63:
        raise ValueError(f"{size!r}: a device has at least 2 MiB of memory")
    return count


def environment(
    devices: int | None = None,
    hbm: int | str | None = None,
    faults: int | str | None = None,
    trace: str | os.PathLike[str] | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables that make a new process (and its children) use the simulated runtime, on top of ``base``.

    ``devices``: 1 to 64 (default 2). ``hbm``: bytes of each device, as a number or "8GiB" (default 8 GiB).
    ``faults``: a seed or a list of faults. ``trace``: file that every call is appended to ("%p": the process id).
    An option that is None keeps the value of ``base``."""
    base = os.environ if base is None else base
    libraries = str(library_folder())
    home = _folder() / "home"
    path = [folder for folder in base.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder and folder != libraries]
    changed = {
        "LD_LIBRARY_PATH": os.pathsep.join([libraries, *path]),
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "ONESIDED_SIM": "1",
    }
    if devices is not None:
        if not 1 <= devices <= 64:
            raise ValueError(f"devices={devices}: between 1 and 64 devices can be simulated")
        changed["ONESIDED_SIM_DEVICES"] = str(devices)
    if hbm is not None:
        changed["ONESIDED_SIM_HBM"] = str(parse_bytes(hbm))
    if faults is not None:
        changed["ONESIDED_SIM_FAULTS"] = str(faults)
    if trace is not None:
        changed["ONESIDED_SIM_TRACE"] = os.path.abspath(trace)
    return changed


def enabled() -> bool:
    """True if this process has the simulated runtime loaded."""
    own = _folder() / "lib"
    return any(path.resolve().parent == own for path in loaded_runtimes())


def enable(
    devices: int | None = None,
    hbm: int | str | None = None,
    faults: int | str | None = None,
    trace: str | os.PathLike[str] | None = None,
) -> None:
    """Enables the simulated runtime in this process and, through the environment, in its children.

    Call it before torch is imported. It may be called again with the same options. Options as in ``environment``.
    Raises RealCannError if the vendor's CANN is loaded or on the library path, SimError if torch_npu is imported
    already."""
    changed = environment(devices, hbm, faults, trace)
    if enabled():
        differing = [
            name
            for name, value in changed.items()
            if name.startswith("ONESIDED_SIM_") and os.environ.get(name) != value
        ]
        if differing:
            raise SimError(f"the simulated runtime is enabled already, with another {', '.join(differing)}")
        os.environ.update(changed)
        return
    folder = library_folder()
    if real := find_real_cann(folder):
        raise RealCannError(
            f"the vendor's CANN runtime is present ({real}): the simulator cannot be used together with it"
        )
    if "torch_npu" in sys.modules:
        raise SimError("torch_npu is imported already: call onesided.ascend_sim.enable() before importing torch")
    os.environ.update(changed)
    for name in _LIBRARIES:
        # Loaded globally and under the vendor's SONAME, so that torch_npu finds its libraries loaded already.
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)


def stats(device: int = 0) -> DeviceStats:
    """This process's counters of a device. Raises SimError if the simulator is not enabled or has no such device."""
    if not enabled():
        raise SimError("the simulated runtime is not enabled in this process")
    runtime = ctypes.CDLL(str(library_folder() / _LIBRARIES[0]))
    raw = _RawStats()
    if code := runtime.onesided_sim_stats(ctypes.c_int32(device), ctypes.byref(raw)):
        raise SimError(f"no counters of device {device} (error {code})")
    return DeviceStats(**{name: getattr(raw, name) for name in DeviceStats.__dataclass_fields__})
