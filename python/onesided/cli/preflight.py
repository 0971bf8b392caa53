"""Checks before the demo for what would stop it later, and reports it in one sentence. Standard library only, so that
./do can check before it installs anything."""

from __future__ import annotations

import sys

from onesided.cli import machine

# The weights once in Ray's object store, plus the copy that is being replaced.
OBJECT_STORE_BYTES = 2 << 30
# Weights in the source, in the receiver, in the object store and in its reader; three processes with torch.
MEMORY_BYTES = 6 << 30


def obstacle() -> str | None:
    """The first reason why the demo cannot run on this machine; None if it can."""
    runtime = machine.runtime()
    if runtime.kind == "real":
        return (
            f"a real Ascend runtime is present ({runtime.path}), but the demo runs on the "
            "simulated one; start it from a shell that does not refer to it "
            "(env -u ASCEND_HOME_PATH -u LD_LIBRARY_PATH ./do demo)."
        )
    if machine.memfd_error():
        return f"this machine cannot share memory by descriptor ({machine.memfd_error()}), which the demo needs."
    if machine.loopback_error():
        return f"no TCP port can be opened ({machine.loopback_error()}); Ray and the engine need loopback."
    free = machine.shared_memory_free()
    if free < OBJECT_STORE_BYTES:
        return (
            f"/dev/shm has {free / 1e9:.1f} GB free but Ray's object store needs {OBJECT_STORE_BYTES / 1e9:.1f} there; "
            "enlarge it (mount -o remount,size=4G /dev/shm, or docker run --shm-size=4g)."
        )
    memory = machine.meminfo_bytes("MemAvailable")
    if memory < MEMORY_BYTES:
        return f"{memory / 1e9:.1f} GB of memory are available, but the demo needs {MEMORY_BYTES / 1e9:.1f}; free some."
    return None


def main() -> int:
    found = obstacle()
    if found:
        print(f"demo: {found}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
