"""One measurement in one process: python -m bench.alloc.measure kv_cache | pairs | decorator_idle | serving WAY. Prints
JSON rows."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import onesided.ascend_sim

onesided.ascend_sim.enable(devices=1, hbm="512GiB")

import torch  # noqa: E402

import onesided.npu  # noqa: E402
from onesided.npu import extension  # noqa: E402

onesided.npu.install()

from torch_npu.npu import MemPool, use_mem_pool  # noqa: E402

Row = dict[str, Any]
ALIGNMENT = 2 << 20
BLOCK_TOKENS = 128
# Published shapes, one rank, bf16: layers, and the bytes of one token in each tensor of a layer.
MODELS = {
    "Llama-3-70B": (80, {"k": 8 * 128 * 2, "v": 8 * 128 * 2}),
    "Qwen3-32B": (64, {"k": 8 * 128 * 2, "v": 8 * 128 * 2}),
    "DeepSeek-V3": (61, {"latent": 512 * 2, "rope": 64 * 2}),
    "Mixtral-8x22B": (56, {"k": 8 * 128 * 2, "v": 8 * 128 * 2}),
}
BLOCK_COUNTS = (97, 1021)
PAIRED_ROUNDS = 300


def tensor_bytes(model: str, blocks: int) -> list[int]:
    layers, tensors = MODELS[model]
    return [blocks * BLOCK_TOKENS * per_token for _ in range(layers) for per_token in tensors.values()]


def empty(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="npu:0")


def allocate(way: str, sizes: list[int]) -> tuple[list[torch.Tensor], Any]:
    """The tensors that a framework would use, and the pool that must live as long."""
    if way == "default":
        return [empty(size) for size in sizes], None
    if way == "pad_and_slice":
        padded = [empty(size + ALIGNMENT) for size in sizes]
        return [p[-p.data_ptr() % ALIGNMENT :][:size] for p, size in zip(padded, sizes, strict=True)], None
    pool = MemPool(no_split=True) if way == "no_split" else MemPool(sub_block_alignment=ALIGNMENT)
    with use_mem_pool(pool):
        return [empty(size) for size in sizes], pool


def kv_cache() -> list[Row]:
    rows = []
    for model in MODELS:
        for blocks in BLOCK_COUNTS:
            sizes = tensor_bytes(model, blocks)
            charged = sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)
            for way in ("aligned_pool", "pad_and_slice", "no_split", "default"):
                torch.npu.empty_cache()
                before = torch.npu.memory_reserved()
                tensors, pool = allocate(way, sizes)
                rows.append(
                    {
                        "bench": "kv_cache",
                        "model": model,
                        "blocks": blocks,
                        "block_tokens": BLOCK_TOKENS,
                        "dtype": "bfloat16",
                        "tensors": len(sizes),
                        "way": way,
                        "requested_bytes": sum(sizes),
                        "charged_bytes": charged,
                        "reserved_bytes": torch.npu.memory_reserved() - before,
                        "misaligned": sum(tensor.data_ptr() % ALIGNMENT != 0 for tensor in tensors),
                    }
                )
                del tensors, pool
    return rows


def trace_library() -> ctypes.CDLL:
    root = Path(__file__).resolve().parents[2]
    name = f"liballoc_trace_{extension.load().built_for.replace('.', '_')}.so"
    built = sorted(root.glob(f"build/*/bindings/torch_npu/{name}"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise SystemExit(
            f"{name} is not built: configure with -DONESIDED_BUILD_BENCH=ON where torch_npu is installed, and build"
        )
    library = ctypes.CDLL(str(built[-1]))
    library.alloc_trace_ns.restype = library.alloc_trace_processor_ns.restype = ctypes.c_double
    return library


def pairs() -> list[Row]:
    """Native, native under the idle decorator, and an aligned pool, interleaved, on the same trace."""
    library = trace_library()
    generator = random.Random(7)
    traces = {
        "small": [generator.randrange(1, 1 << 20) for _ in range(20_000)],
        "kv": [generator.randrange(1, 16) * ALIGNMENT - generator.randrange(1000) for _ in range(20_000)],
    }
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    rows = []
    for sizes, trace in traces.items():
        raw = (ctypes.c_uint64 * len(trace))(*trace)
        for threads in (1, 8):
            spent: dict[str, list[float]] = {"native": [], "decorator_idle": [], "aligned_pool": []}

            def run(who: str) -> None:
                spent[who].append(library.alloc_trace_ns(raw, ctypes.c_uint64(len(trace)), threads, 0, stream))  # noqa: B023

            for _ in range(7):
                onesided.npu.uninstall()
                run("native")
                onesided.npu.install()
                run("decorator_idle")
                pool = torch.npu.MemPool(sub_block_alignment=4096 if sizes == "small" else ALIGNMENT)
                with torch.npu.use_mem_pool(pool, all_threads=True):
                    run("aligned_pool")
                del pool
            for who, times in spent.items():
                rows.append(
                    {
                        "bench": "pairs",
                        "who": who,
                        "threads": threads,
                        "sizes": sizes,
                        "pairs": len(trace) * threads,
                        "median_ns": statistics.median(times),
                        "best_ns": min(times),
                    }
                )
    return rows


def decorator_idle() -> list[Row]:
    """Rule 5 of the pools: without one, the decorator costs nothing. The bare and the decorated allocator run the same
    trace in turn, many short runs whose order alternates, in processor time; each pair of neighbours gives one ratio."""
    library = trace_library()
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    generator = random.Random(7)
    trace = (ctypes.c_uint64 * 4000)(*(generator.randrange(1, 1 << 20) for _ in range(4000)))

    def malloc_free() -> float:
        return library.alloc_trace_processor_ns(trace, ctypes.c_uint64(len(trace)), stream)

    def torch_empty() -> float:
        start = time.thread_time_ns()
        for nbytes in trace[:1000]:
            torch.empty(nbytes, dtype=torch.uint8, device="npu:0")
        return (time.thread_time_ns() - start) / 1000

    rows = []
    for what, work in {"malloc + free": malloc_free, "torch.empty": torch_empty}.items():
        spent: dict[bool, list[float]] = {False: [], True: []}
        for round_number in range(PAIRED_ROUNDS):
            for decorated in (False, True) if round_number % 2 else (True, False):
                (onesided.npu.install if decorated else onesided.npu.uninstall)()
                spent[decorated].append(work())
        ratios = sorted(with_it / bare for with_it, bare in zip(spent[True], spent[False], strict=True))
        # Order statistics that hold the true median with 95 %.
        reach = int(0.98 * math.sqrt(len(ratios))) + 1
        middle = len(ratios) // 2
        rows.append(
            {
                "bench": "decorator_idle",
                "what": what,
                "rounds": len(ratios),
                "bare_ns": statistics.median(spent[False]),
                "decorated_ns": statistics.median(spent[True]),
                "median_ratio": statistics.median(ratios),
                "ratio_low": ratios[middle - reach],
                "ratio_high": ratios[middle + reach],
            }
        )
    onesided.npu.install()
    return rows


def serving(way: str) -> list[Row]:
    """A serving mix: a KV cache for good, staging buffers that come and go, short activations of all sizes."""
    generator = random.Random(11)
    pool = MemPool(sub_block_alignment=ALIGNMENT) if way == "aligned_pool" else None
    inside = use_mem_pool(pool) if pool is not None else contextlib.nullcontext()
    reserved, requested = [], []
    with inside:
        kept = [empty(25 << 20) for _ in range(64)]
        staging: list[torch.Tensor] = []
        for _ in range(600):
            if staging and generator.random() < 0.5:
                staging.pop(generator.randrange(len(staging)))
            else:
                staging.append(empty(generator.randrange(1 << 20, 96 << 20)))
            activations = [empty(generator.randrange(1 << 10, 8 << 20)) for _ in range(8)]
            stats = torch.npu.memory_stats()
            reserved.append(stats["reserved_bytes.all.current"])
            requested.append(stats["requested_bytes.all.current"])
            del activations
    del kept
    return [{"bench": "serving", "way": way, "reserved_bytes": reserved, "requested_bytes": requested}]


if __name__ == "__main__":
    torch.npu.set_device(0)
    MEASURES = {"kv_cache": kv_cache, "pairs": pairs, "decorator_idle": decorator_idle, "serving": serving}
    print(json.dumps(MEASURES[sys.argv[1]](*sys.argv[2:])))
