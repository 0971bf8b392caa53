"""Objects between Ray actors on this machine: this transport, Ray's object store (default and zero-copy), GLOO, a
transport that moves nothing, and a plain copy, in turns over the same shapes. All give tensors that may be written:
zero-copy ones are read-only views and are cloned by who takes them."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

import onesided

from . import nothing
from .picture import draw

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# (bytes of one tensor, tensors, consumers)
SHAPES = [
    (4, 1, 1),
    (64 * KIB, 1, 1),
    (MIB, 1, 1),
    (16 * MIB, 1, 1),
    (256 * MIB, 1, 1),
    (GIB, 1, 1),
    (4, 10_000, 1),
    (3 * MIB, 290, 1),
    (1000 * KIB, 5, 1),  # ray-ascend's own benchmark
    (16 * MIB, 1, 2),
    (16 * MIB, 1, 4),
    (256 * MIB, 1, 4),
]
Row = dict[str, Any]


@contextlib.contextmanager
def cluster(store_bytes: int) -> Iterator[None]:
    root, package = Path(__file__).resolve().parents[2], Path(onesided.__file__).resolve().parent.parent
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([str(root), str(package), os.environ.get("PYTHONPATH", "")]),
    }
    ray.init(
        address="local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="error",
        object_store_memory=store_bytes,
    )  # fmt: skip
    try:
        yield
    finally:
        ray.shutdown()


class Bench:
    """The actors and one way after the other to pass an object between them."""

    def __init__(self) -> None:
        from ray.experimental.collective import create_collective_group

        from .actors import Consumer, Producer

        receives = {"enable_tensor_transport": True, "num_cpus": 0}
        zero_copy = {"runtime_env": {"env_vars": {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}}}
        self.producer = ray.remote(num_cpus=0)(Producer).remote()
        self.consumers = [ray.remote(**receives)(Consumer).remote() for _ in range(4)]
        self.zero_copy_producer = ray.remote(num_cpus=0)(Producer).options(**zero_copy).remote()
        self.zero_copy_consumers = [ray.remote(**receives)(Consumer).options(**zero_copy).remote() for _ in range(4)]
        create_collective_group([self.producer, self.consumers[0]], backend="gloo")

    def producer_of(self, peer: str) -> Any:
        return self.zero_copy_producer if peer == "object_store_zero_copy" else self.producer

    def once(self, peer: str, consumers: int, number: int) -> tuple[float, bool]:
        """Seconds from the call to the last consumer's answer, and whether they saw this round's stamps."""
        producer = self.producer_of(peer)
        ray.get(producer.stamp.remote(number))
        zero_copy = peer == "object_store_zero_copy"
        takers = (self.zero_copy_consumers if zero_copy else self.consumers)[:consumers]
        give = {"onesided": "by_onesided", "gloo": "by_gloo", "nothing": "by_nothing"}.get(peer, "by_store")
        started = time.perf_counter()
        ref = getattr(producer, give).remote()
        answers = ray.get([taker.take.remote(ref, zero_copy) for taker in takers])
        return time.perf_counter() - started, all(tuple(answer) == (number, number) for answer in answers)

    def measure(self, size: int, count: int, consumers: int, rounds: int) -> Iterator[Row]:
        # GLOO has one receiver, and sends a list tensor by tensor.
        with_gloo = consumers == 1 and count < 1000
        peers = ["onesided", "nothing", "object_store", "object_store_zero_copy"] + ["gloo"] * with_gloo
        for producer in (self.producer, self.zero_copy_producer):
            ray.get(producer.prepare.remote(size, count))
        seconds: dict[str, list[float]] = {peer: [] for peer in peers}
        verified = dict.fromkeys(peers, True)
        first: dict[str, float] = {}
        for number in range(1, rounds + 2):
            for peer in peers:
                took, right = self.once(peer, consumers, number)
                verified[peer] &= right
                if number == 1:
                    first[peer] = took
                else:
                    seconds[peer].append(took)
        for peer in peers:
            row = _row(peer, size, count, consumers, seconds[peer]) | {"first_ms": round(first[peer] * 1e3, 3)}
            yield row | {"verified": verified[peer] if peer != "nothing" else None}
        copied = ray.get(self.producer.raw_copy_seconds.remote(rounds))
        yield _row("raw_copy", size, count, 1, copied) | {"first_ms": None, "verified": None}


def _row(peer: str, size: int, count: int, consumers: int, seconds: list[float]) -> Row:
    nbytes = size * count * consumers
    median, best = statistics.median(seconds), min(seconds)
    return {
        "peer": peer, "size": size, "count": count, "consumers": consumers, "rounds": len(seconds),
        "median_ms": round(median * 1e3, 3), "best_ms": round(best * 1e3, 3),
        "median_gbps": round(nbytes / median / 1e9, 4), "best_gbps": round(nbytes / best / 1e9, 4),
    }  # fmt: skip


def _print(row: Row) -> None:
    shape = f"{row['count']} x {row['size']:,} B to {row['consumers']}"
    right = {True: "", False: "  WRONG BYTES", None: ""}[row["verified"]]
    print(
        f"  {shape:<30} {row['peer']:<24} {row['median_ms']:>10.2f} ms  {row['median_gbps']:>8.3f} GB/s"
        f"  (best {row['best_gbps']:.3f}){right}",
        flush=True,
    )


def main(json_path: str | None = None, *, max_mib: int = 1024, rounds: int = 5) -> int:
    """Objects between Ray actors: this transport beside the object store, GLOO, nothing at all, and a plain copy."""
    shapes = [(size, count, to) for size, count, to in SHAPES if size * count <= max_mib * MIB]
    largest = max(size * count for size, count, _ in shapes)
    rows: list[Row] = []
    nothing.register()
    with cluster(max(256 * MIB, 5 * largest // 2)):
        bench = Bench()
        for size, count, consumers in shapes:
            # One small tensor costs little and varies much.
            for row in bench.measure(size, count, consumers, rounds * 8 if size * count <= 4 * KIB else rounds):
                rows.append(row)
                _print(row)
    if json_path:
        Path(json_path).write_text(json.dumps(rows, indent=1) + "\n")
        picture = draw(rows, Path(json_path).with_suffix(".png"))
        print(f"{len(rows)} rows in {json_path}" + (f", picture in {picture}" if picture else ""))
    wrong = [row for row in rows if row["verified"] is False]
    for row in wrong:
        print(f"wrong bytes: {row}", file=sys.stderr)
    return 1 if wrong else 0
