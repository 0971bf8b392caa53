"""One side of one peer. `reader` starts its own `owner`; the owner prints who it is and waits for the end of its input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class OnesidedPython:
    """Our engine through its Python face, shm."""

    transport = "shm"

    def __init__(self) -> None:
        import onesided

        self.onesided = onesided
        self.engine = onesided.Engine("127.0.0.1:0")

    def allocate(self, nbytes: int) -> np.ndarray:
        self.memory = self.onesided.host_pool(nbytes)
        return self.memory.numpy()

    def serve(self, address: int, nbytes: int) -> Any:
        self.engine.register_mem(address, nbytes)
        return self.engine.id

    def connect(self, served: Any, address: int, nbytes: int) -> None:
        self.remote = served
        self.engine.register_mem(address, nbytes)
        self.engine.connect(served)

    def read(self, ranges: list[tuple[int, int, int]]) -> None:
        self.engine.transfer_sync(self.remote, "READ", ranges, timeout_ms=60_000)


class Mooncake:
    transport = "tcp"

    def __init__(self) -> None:
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        self._check("initialize", self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))

    @staticmethod
    def _check(what: str, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"{what} answered {code}")

    def allocate(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def serve(self, address: int, nbytes: int) -> Any:
        self._check("register_memory", self.engine.register_memory(address, nbytes))
        return f"127.0.0.1:{self.engine.get_rpc_port()}"

    def connect(self, served: Any, address: int, nbytes: int) -> None:
        self.remote = served
        self._check("register_memory", self.engine.register_memory(address, nbytes))

    def read(self, ranges: list[tuple[int, int, int]]) -> None:
        if len(ranges) == 1:
            self._check("transfer_sync_read", self.engine.transfer_sync_read(self.remote, *ranges[0]))
            return
        local, remote, nbytes = (list(column) for column in zip(*ranges, strict=True))
        self._check(
            "batch_transfer_sync_read", self.engine.batch_transfer_sync_read(self.remote, local, remote, nbytes)
        )


class Nixl:
    transport = "ucx"

    def __init__(self) -> None:
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(f"agent-{os.getpid()}", nixl_agent_config(backends=["UCX"]))

    def allocate(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def serve(self, address: int, nbytes: int) -> Any:
        self.registered = self.agent.register_memory([(address, nbytes, 0, "buffer")], "DRAM")
        return self.agent.get_agent_metadata().hex()

    def connect(self, served: Any, address: int, nbytes: int) -> None:
        self.registered = self.agent.register_memory([(address, nbytes, 0, "buffer")], "DRAM")
        remote = self.agent.add_remote_agent(bytes.fromhex(served))
        self.remote = remote.decode() if isinstance(remote, bytes) else remote

    def read(self, ranges: list[tuple[int, int, int]]) -> None:
        local = self.agent.get_xfer_descs([(to, nbytes, 0) for to, _, nbytes in ranges], "DRAM")
        remote = self.agent.get_xfer_descs([(start, nbytes, 0) for _, start, nbytes in ranges], "DRAM")
        handle = self.agent.initialize_xfer("READ", local, remote, self.remote)
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL ended in state {state}")


KINDS = {"onesided_python": OnesidedPython, "mooncake": Mooncake, "nixl": Nixl}


def owner(work: dict[str, Any], out: Any) -> None:
    peer = KINDS[work["peer"]]()
    data = peer.allocate(work["buffer"])
    words = data.view(np.uint64)
    step = 1 << 20
    for first in range(0, len(words), step):
        words[first : first + step] = np.arange(first, min(first + step, len(words)), dtype=np.uint64) * MULTIPLIER
    served = peer.serve(data.ctypes.data, data.nbytes)
    print(json.dumps({"served": served, "address": data.ctypes.data}), file=out, flush=True)
    sys.stdin.read()


def reader(work: dict[str, Any], out: Any) -> None:
    command = [sys.executable, __file__, "owner", json.dumps(work)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            hello = json.loads(process.stdout.readline())
            peer = KINDS[work["peer"]]()
            target = peer.allocate(work["buffer"])
            target[:] = 1
            peer.connect(hello["served"], target.ctypes.data, target.nbytes)
            for size, count in work["shapes"]:
                print(
                    json.dumps(measure(peer, work, hello["address"], target, size, count, process.pid)),
                    file=out,
                    flush=True,
                )
        finally:
            process.kill()


def owner_seconds(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)  # the processor clock of another process


def measure(
    peer: Any, work: dict[str, Any], remote: int, target: np.ndarray, size: int, count: int, pid: int
) -> dict[str, Any]:
    random = np.random.default_rng(size + count)
    buffer = work["buffer"]
    slots = (min(buffer, 4 << 20) if size * count <= 64 << 10 else buffer) // size
    runs = int(np.clip((512 << 20) // (size * count), 3, 2000))
    us, verified = [], True
    wall = here = there = 0.0
    for _ in range(runs):
        sources, targets = (
            random.permutation(max(slots, count))[:count] % slots,
            random.permutation(max(slots, count))[:count] % slots,
        )
        base = target.ctypes.data
        ranges = [
            (base + int(to) * size, remote + int(start) * size, size)
            for to, start in zip(targets, sources, strict=True)
        ]
        cpu, owner_cpu, start_ns = time.process_time(), owner_seconds(pid), time.perf_counter_ns()
        peer.read(ranges)
        taken = (time.perf_counter_ns() - start_ns) / 1e3
        here, there, wall = here + time.process_time() - cpu, there + owner_seconds(pid) - owner_cpu, wall + taken / 1e6
        us.append(taken)
        got = target.view(np.uint64)[int(targets[-1]) * size // 8 :][: size // 8 : 511]
        first = int(sources[-1]) * size // 8
        verified &= bool((got == np.arange(first, first + size // 8, 511, dtype=np.uint64) * MULTIPLIER).all())
    us.sort()
    median, best = us[len(us) // 2], us[0]
    return {
        "peer": work["peer"], "transport": peer.transport, "op": "READ", "size": size, "count": count, "median_us": median,
        "best_us": best, "p99_us": us[len(us) * 99 // 100], "median_gbps": size * count / median / 1e3,
        "best_gbps": size * count / best / 1e3, "verified": verified, "reader_cores": here / wall, "owner_cores": there / wall,
    }  # fmt: skip


if __name__ == "__main__":
    # Peers print to stdout as they please; ours stays clean.
    clean = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    {"owner": owner, "reader": reader}[sys.argv[1]](json.loads(sys.argv[2]), clean)
    clean.flush()
    os._exit(0)  # some peers do not survive their own shutdown
