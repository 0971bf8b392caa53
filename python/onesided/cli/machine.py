"""Queries of the machine, for the doctor and for the demo's preflight check. Standard library only, because they are
needed before anything is installed."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from onesided.ascend_sim import real_cann


@dataclass(frozen=True)
class Runtime:
    """The device runtime that a program started now would load. A value."""

    kind: str  # "real", "simulated", "none"
    path: str | None


def runtime() -> Runtime:
    """The libascendcl.so that is loaded, or would be. A real one takes precedence over a simulated one; they must not
    be mixed."""
    ours = Path(__file__).resolve().parents[1] / "ascend_sim" / "lib"
    real = real_cann.find_real_cann(ours)
    if real:
        return Runtime("real", str(real))
    on_path = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    simulated = [path for path in real_cann.loaded_runtimes() if real_cann.is_simulator(path)]
    simulated += [path for path in (f / real_cann.RUNTIME_NAME for f in on_path) if real_cann.is_simulator(path)]
    return Runtime("simulated", str(simulated[0])) if simulated else Runtime("none", None)


def read_line(path: str) -> str | None:
    """The first line of a file of /proc or /sys; None if there is none."""
    try:
        return Path(path).read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def meminfo_bytes(field: str) -> int:
    """A line of /proc/meminfo in bytes; 0 if it is missing."""
    try:
        match = re.search(rf"^{field}:\s+(\d+)( kB)?", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) * (1024 if match[2] else 1) if match else 0


def shared_memory_free() -> int:
    """Free bytes in /dev/shm, where Ray keeps its object store; 0 if there is no /dev/shm."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return 0


def memfd_error() -> str | None:
    """The reason why memory cannot be shared by descriptor; None if it can."""
    try:
        fd = os.memfd_create("onesided-probe", os.MFD_CLOEXEC)
    except (OSError, AttributeError) as error:
        return f"memfd_create: {error}"
    try:
        os.ftruncate(fd, mmap.PAGESIZE)
        mmap.mmap(fd, mmap.PAGESIZE).close()
    except OSError as error:
        return f"mapping a memfd: {error}"
    finally:
        os.close(fd)
    return None


def ptrace_scope() -> int:
    """Yama's setting: 0 unrestricted (also without Yama), 1 descendants only, 2 admin only, 3 no process."""
    value = read_line("/proc/sys/kernel/yama/ptrace_scope")
    return int(value) if value and value.isdigit() else 0


class _IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def process_read_error() -> str | None:
    """The reason why one process cannot read a sibling's memory (a real process_vm_readv is tried); None if it can."""
    word = ctypes.create_string_buffer(b"onesided")
    owner = os.fork()
    if owner == 0:
        signal.pause()
        os._exit(0)
    reader = os.fork()
    if reader == 0:
        os._exit(_read_from(owner, word))
    _, status = os.waitpid(reader, 0)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == 0 else f"process_vm_readv: {os.strerror(code)}"


def _read_from(pid: int, word: ctypes.Array[ctypes.c_char]) -> int:
    """0, or the errno of reading `word`, which has the same address in the forked process."""
    libc = ctypes.CDLL(None, use_errno=True)
    copy = ctypes.create_string_buffer(len(word))
    local = _IoVec(ctypes.addressof(copy), len(word))
    remote = _IoVec(ctypes.addressof(word), len(word))
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    done = libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return 0 if done == len(word) else (ctypes.get_errno() or 1)


def cubic_allowed() -> bool:
    """True if the engine's data connections get the congestion control that they request."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        except OSError:
            return False
    return True


def loopback_error() -> str | None:
    """The reason why no TCP port can be opened on loopback; None if one can."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return None
    except OSError as error:
        return f"listening on 127.0.0.1: {error}"
