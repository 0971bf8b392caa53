"""One random trace of raw allocations on torch_npu, as JSON: addresses relative to the first, raw calls, statistics.

    trace.py with|without SEED... [--steps N]

Run with and without the decorator, the two must be equal: without an aligned pool the vendor's code runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys

import onesided.ascend_sim

os.environ["ONESIDED_SIM_MACHINE"] = f"trace-{os.getpid()}"
onesided.ascend_sim.enable(devices=1, hbm="8GiB")

import torch  # noqa: E402
import torch_npu  # noqa: E402


def size_of(rng: random.Random) -> int:
    kind = rng.random()
    for share, low, high in ((0.4, 1, 4096), (0.7, 4096, 1 << 20), (0.95, 1 << 20, 10 << 20)):
        if kind < share:
            return rng.randrange(low, high)
    return rng.randrange(10 << 20, 64 << 20)


def replay(seed: int, steps: int) -> dict:
    core, rng = torch_npu._C, random.Random(seed)
    stream = torch.npu.current_stream().npu_stream
    start = onesided.ascend_sim.stats(0)
    live: list[int] = []
    first: int | None = None
    digest = hashlib.sha256()
    for step in range(steps):
        if live and (rng.random() < 0.48 or len(live) > 400):
            address = live.pop(rng.randrange(len(live)))
            core._npu_npuCachingAllocator_raw_delete(address)
            event = ("free", address - first)
        else:
            nbytes = size_of(rng)
            try:
                address = core._npu_npuCachingAllocator_raw_alloc(nbytes, stream)
            except RuntimeError:
                event = ("oom", nbytes)
            else:
                first = address if first is None else first
                live.append(address)
                event = ("alloc", nbytes, address - first)
        digest.update(repr(event).encode())
        if step % 2500 == 2499:
            torch.npu.empty_cache()
    end, stats = onesided.ascend_sim.stats(0), torch.npu.memory_stats()
    snapshot = torch.npu.memory_snapshot()
    for address in live:
        core._npu_npuCachingAllocator_raw_delete(address)
    torch.npu.empty_cache()
    return {
        "events": digest.hexdigest(),
        "live": len(live),
        "mallocs": end.mallocs - start.mallocs,
        "frees": end.frees - start.frees,
        "used": end.used_bytes,
        "segments": [(s["address"] - (first or 0), s["total_size"], len(s["blocks"])) for s in snapshot],
        "stats": {name: value for name, value in stats.items() if not name.startswith("oversize")},
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("decorator", choices=["with", "without"])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    torch.npu.set_device(0)
    if arguments.decorator == "with":
        import onesided.npu

        onesided.npu.install()
    print(json.dumps([replay(seed, arguments.steps) for seed in arguments.seeds]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
