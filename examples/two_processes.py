#!/usr/bin/env python3
"""Reads memory of another process, whose program does nothing for it.

    python examples/two_processes.py

The first process registers memory, says where it is, and sleeps. The second reads it.
"""

import subprocess
import sys

import numpy as np

import onesided

NBYTES = 64 << 20


def owner() -> None:
    """Registers a buffer, prints its engine's id and a description of the buffer, and waits to be told to end."""
    with onesided.Engine("127.0.0.1:0") as engine:
        buffer = onesided.host_pool(NBYTES)  # memory that other processes can map: READs copy without a system call
        buffer.numpy()[:] = np.arange(NBYTES, dtype=np.uint64).astype(np.uint8)
        engine.register_mem(buffer.addr, buffer.nbytes, "host")
        print(engine.id, engine.describe([(buffer.addr, buffer.nbytes)]).hex(), flush=True)
        sys.stdin.read()


def reader(remote_id: str, described: bytes) -> None:
    with onesided.Engine("127.0.0.1:0") as engine:
        target = onesided.host_pool(NBYTES)
        engine.register_mem(target.addr, target.nbytes, "host")
        engine.connect(remote_id)
        regions = engine.import_desc(
            described
        )  # bound to that registration: memory that is gone gives STALE, not bytes
        request = engine.transfer_async(remote_id, "READ", regions.pairs([(target.addr, 0, 0, NBYTES)]))
        print(
            request.wait().name,
            f"{request.bytes_done >> 20} MiB over",
            [name for name, n in engine.stats()["peers"][remote_id]["bytes"].items() if n],
        )
        assert (target.numpy() == np.arange(NBYTES, dtype=np.uint64).astype(np.uint8)).all()


def main() -> None:
    if sys.argv[1:] == ["owner"]:
        return owner()
    with subprocess.Popen(
        [sys.executable, __file__, "owner"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin and other.stdout
        remote_id, described = other.stdout.readline().split()
        reader(remote_id, bytes.fromhex(described))
        other.stdin.close()


if __name__ == "__main__":
    main()
