"""One rank of the measurement; rank 0 prints a row a line. The peers of a shape are measured in turn, round by round,
so that what else the machine does meets all of them."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

SIZES = (4 << 10, 1 << 20, 256 << 20)


def _runs(nbytes: int, device: torch.device, gloo: dist.ProcessGroup) -> dict[str, Callable[[], None]]:
    """What is timed, by peer; each returns when its result is there."""
    count = nbytes // 4
    on_device = torch.ones(count, device=device)
    on_host, other, result = torch.ones(count), torch.ones(count), torch.empty(count)
    half = count // 2

    def sim() -> None:
        dist.all_reduce(on_device)
        torch.npu.synchronize()

    def with_gloo() -> None:
        dist.all_reduce(on_host, group=gloo)

    def raw() -> None:
        torch.add(on_host[:half], other[:half], out=result[:half])
        result[half:].copy_(other[half:])

    return {"sim": sim, "gloo": with_gloo, "raw": raw}


def _measure(
    runs: dict[str, Callable[[], None]], rounds: int, repeats: int, gloo: dist.ProcessGroup
) -> dict[str, list[float]]:
    """Seconds of each round, averaged over its repeats."""
    seconds: dict[str, list[float]] = {peer: [] for peer in runs}
    for round_number in range(-2, rounds):  # two to warm up
        for peer, run in runs.items():
            dist.barrier(group=gloo)
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            if round_number >= 0:
                seconds[peer].append((time.perf_counter() - start) / repeats)
    return seconds


def main(rounds: int) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    device = torch.device("npu", rank)
    torch.npu.set_device(device)
    dist.init_process_group("hccl")
    gloo = dist.new_group(backend="gloo")
    for nbytes in SIZES:
        large = nbytes > 64 << 20
        seconds = _measure(_runs(nbytes, device, gloo), 5 if large else rounds, 1 if large else 20, gloo)
        for peer, measured in seconds.items():
            row = {
                "op": "all_reduce", "bytes": nbytes, "ranks": dist.get_world_size(), "peer": peer,
                "median_us": round(statistics.median(measured) * 1e6, 1), "best_us": round(min(measured) * 1e6, 1),
            }  # fmt: skip
            if rank == 0:
                print(json.dumps(row), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
