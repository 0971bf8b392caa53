"""The interplay matrix, all of it: every combination of torch_npu's allocator settings with every kind of pool. Each cell
asserts what docs/aligned_pools.md says.

    matrix.py RESULTS.json

Settings are read once per process, at the first allocation: one process per combination of settings, forked from one
that has imported everything and touched no device. RESULTS.json says of each cell "ok", "refused" or what was wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

# Also read by tests that compare it with the documents, without torch.
EXPANDABLE = (False, True)
GC_THRESHOLD = (None, 0.2)
MAX_SPLIT_MB = (None, 32)
ROUNDUP = (None, 4)
ALIGNMENTS = (None, 4096, 2 << 20, 4 << 20)
STREAMS = (1, 3)
CUSTOM_UPSTREAM = (False, True)

# What the documents say of these dimensions, row by row: setting, the vendor's blocks, an aligned pool's.
DOCUMENTED = (
    (
        "no `sub_block_alignment`",
        "same segments, blocks and statistics as without the decorator",
        "(there is none)",
    ),
    (
        "`expandable_segments:True`",
        "growable; torch_npu ignores the allocator library of its own pools then",
        "no effect: its segments come from its own source, a custom one too",
    ),
    (
        "`garbage_collection_threshold`",
        "idle segments are freed when the memory fraction is nearly used",
        "no effect; it has `gc_threshold` in `pool_options`",
    ),
    (
        "`max_split_size_mb`",
        "as ever",
        "no effect: every block may be split, and splits merge again",
    ),
    ("`roundup_power2_divisions`", "as ever", "no effect: charges are exact"),
    (
        "`expandable_segments` with either of the two before",
        "refused by torch_npu at the first contact with the device",
        "refused likewise",
    ),
    ("several streams", "as ever", "blocks are aligned, disjoint and charged exactly on each"),
    (
        "an allocator library",
        "as ever",
        "each segment is allocated and freed by it, once; with a guard (above)",
    ),
)

MIB = 1 << 20
GRANULE = 2 * MIB  # of segments; also what torch_npu's segments are multiples of


@dataclasses.dataclass(frozen=True)
class Settings:
    """One value of PYTORCH_NPU_ALLOC_CONF."""

    expandable: bool
    gc_threshold: float | None
    max_split_mb: int | None
    roundup: int | None

    @property
    def conf(self) -> str:
        parts = {
            "expandable_segments": "True" if self.expandable else None,
            "garbage_collection_threshold": self.gc_threshold,
            "max_split_size_mb": self.max_split_mb,
            "roundup_power2_divisions": self.roundup,
        }
        return ",".join(f"{name}:{value}" for name, value in parts.items() if value is not None)

    @property
    def refused(self) -> bool:
        """torch_npu excludes these itself."""
        return self.expandable and (self.gc_threshold is not None or self.max_split_mb is not None)


@dataclasses.dataclass(frozen=True)
class Pooling:
    """One kind of pool and its use."""

    alignment: int | None
    streams: int
    custom: bool

    @property
    def name(self) -> str:
        kind = "no alignment" if self.alignment is None else f"{self.alignment >> 10} KiB"
        return f"{kind}, {self.streams} stream(s), {'custom' if self.custom else 'default'} upstream"


def all_settings() -> list[Settings]:
    return [Settings(*values) for values in itertools.product(EXPANDABLE, GC_THRESHOLD, MAX_SPLIT_MB, ROUNDUP)]


def all_poolings() -> list[Pooling]:
    return [Pooling(*values) for values in itertools.product(ALIGNMENTS, STREAMS, CUSTOM_UPSTREAM)]


def cell_name(settings: Settings, pooling: Pooling) -> str:
    return f"{settings.conf or 'no setting'} / {pooling.name}"


class Cells:
    """The cells of one combination of settings, in a process of its own."""

    def __init__(self, settings: Settings, upstream: object) -> None:
        self.settings = settings
        self.upstream = upstream

    def run(self, pooling: Pooling) -> object:
        """What is the same in every combination of settings for an aligned pool; None for the vendor's."""
        if self.settings.refused:
            self._refused(pooling)
            return "refused"
        before = (self.upstream.allocs, self.upstream.frees)
        seen = self._native(pooling) if pooling.alignment is None else self._aligned(pooling)
        torch.npu.synchronize()
        torch.npu.empty_cache()
        made, freed = self.upstream.allocs - before[0], self.upstream.frees - before[1]
        assert made == freed and self.upstream.wrong == 0, "segments went back where they came from, once"
        assert (made > 0) == self._uses_upstream(pooling)
        assert onesided.npu.pools() == []
        assert torch.npu.memory_reserved() == device_used()
        return seen

    def _uses_upstream(self, pooling: Pooling) -> bool:
        # torch_npu ignores a pool's own allocator while segments are growable; an aligned pool never does.
        return pooling.custom and not (pooling.alignment is None and self.settings.expandable)

    def _refused(self, pooling: Pooling) -> None:
        try:
            with contextlib.ExitStack() as inside:
                if pooling.alignment is not None:
                    inside.enter_context(torch_npu.npu.use_mem_pool(self._pool(pooling)))
                torch.empty(1, device="npu:0")
        except RuntimeError as error:
            assert "expandable_segments" in str(error), error
        else:
            raise AssertionError("torch_npu took settings that exclude each other")
        assert onesided.npu.pools() == []

    def _pool(self, pooling: Pooling) -> object:
        allocator = self.upstream.allocator().allocator() if pooling.custom else None
        return torch_npu.npu.MemPool(allocator, sub_block_alignment=pooling.alignment)

    # The vendor's own pool: with the decorator in front of it everything is as without.
    def _native(self, pooling: Pooling) -> None:
        pictures = []
        for decorated in (False, True):
            (onesided.npu.install if decorated else onesided.npu.uninstall)()
            torch.npu.reset_peak_memory_stats()
            torch.npu.reset_accumulated_memory_stats()
            # Without the decorator MemPool has no such argument.
            allocator = self.upstream.allocator().allocator() if pooling.custom else None
            pool = torch_npu.npu.MemPool(allocator)
            live = use(pool, pooling.streams)
            pictures.append((blocks_of(pool), torch.npu.memory_stats()))
            del live, pool
            torch.npu.synchronize()
            torch.npu.empty_cache()
        (blocks, stats), (decorated_blocks, decorated_stats) = pictures
        assert decorated_blocks == blocks, "segments and blocks of the vendor's pool"
        assert decorated_stats == stats, "statistics"
        assert all(expandable == self.settings.expandable for _, expandable, _ in blocks)

    # An aligned pool: no setting of the native allocator reaches it.
    def _aligned(self, pooling: Pooling) -> object:
        pool = self._pool(pooling)
        live = use(pool, pooling.streams)
        alignment = pooling.alignment
        addresses = sorted((t.data_ptr(), t.nbytes) for t in live)
        assert all(a % alignment == 0 for a, _ in addresses), "alignment"
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(addresses)), "overlap"
        stats = onesided.npu.pool_stats(pool)
        assert stats["allocated_bytes.current"] == sum(-(-n // alignment) * alignment for _, n in addresses), "charges"
        assert stats["requested_bytes.current"] == sum(n for _, n in addresses), "requests"
        # The guard of a custom upstream's segments, and what an alignment above the device's own costs at their start.
        beyond = GRANULE * pooling.custom + max(alignment - GRANULE, 0)
        assert stats["overhead_bytes.current"] <= stats["segment.current"] * beyond, "overhead"
        seen = blocks_of(pool)
        assert not any(expandable for _, expandable, _ in seen)
        self._native_beside(pool)
        assert blocks_of(pool) == seen, "what the native allocator does beside a pool does not reach it"
        self._idle_segments(pool)
        return seen, {name: value for name, value in stats.items() if "device" not in name}

    # Blocks outside the pool are the vendor's: growable where that is asked, also after an exception (field case A16).
    def _native_beside(self, pool: object) -> None:
        try:
            with torch_npu.npu.use_mem_pool(pool):
                raise KeyError
        except KeyError:
            pass
        outside = torch.empty(30 * MIB, dtype=torch.uint8, device="npu:0")
        assert onesided.npu.pool_of(outside) is None
        (segment,) = [
            one
            for one in torch.npu.memory_snapshot()
            if one["address"] <= outside.data_ptr() < one["address"] + one["total_size"]
        ]
        assert segment["is_expandable"] == self.settings.expandable

    # Idle segments of the pool stay when the native allocator collects its garbage, and go with empty_cache().
    def _idle_segments(self, pool: object) -> None:
        with torch_npu.npu.use_mem_pool(pool):
            torch.empty(40 * MIB, dtype=torch.uint8, device="npu:0")
        held = onesided.npu.pool_stats(pool)["reserved_bytes.current"]
        limit = torch.npu.memory_reserved() + 120 * MIB
        frees = onesided.ascend_sim.stats(0).frees
        torch.npu.set_per_process_memory_fraction(limit / torch.npu.get_device_properties(0).total_memory)
        try:
            for _ in range(5):
                with torch.npu.stream(torch.npu.Stream()):  # each has a segment of its own
                    torch.empty(19 * MIB, dtype=torch.uint8, device="npu:0")
        finally:
            torch.npu.set_per_process_memory_fraction(1.0)
        if not self.settings.expandable:  # pieces of growable segments come and go by rules of their own
            collected = onesided.ascend_sim.stats(0).frees > frees
            assert collected == (self.settings.gc_threshold is not None), "the vendor's garbage collection"
        assert onesided.npu.pool_stats(pool)["reserved_bytes.current"] == held, "garbage collection of the vendor's"
        torch.npu.empty_cache()
        assert onesided.npu.pool_stats(pool)["reserved_bytes.current"] < held, "empty_cache"


def use(pool: object, streams: int) -> list:
    """A fixed sequence of allocations, frees and recorded streams in the pool; the tensors that are left."""
    queues = [torch.npu.current_stream(), *(torch.npu.Stream() for _ in range(streams - 1))]
    live = []
    for step in range(60):
        with torch.npu.stream(queues[step % streams]):
            if live and step % 3 == 2:
                del live[step * 5 % len(live)]
            else:
                with torch_npu.npu.use_mem_pool(pool):
                    live.append(torch.empty(1 + step * 50_021, dtype=torch.uint8, device="npu:0"))
                if streams > 1:
                    live[-1].record_stream(queues[(step + 1) % streams])
        # Whether an event has happened yet would decide where the next block lies.
        torch.npu.synchronize()
    return live


def blocks_of(pool: object) -> list:
    """The pool's segments in the order they were made (addresses only grow here), their blocks by offset."""
    return [
        (
            segment["total_size"],
            segment["is_expandable"],
            [(block["address"] - segment["address"], block["size"], block["state"]) for block in segment["blocks"]],
        )
        for segment in sorted(pool.snapshot(), key=lambda one: one["address"])
    ]


def run_cells(settings: Settings, poolings: list[Pooling], upstream: object) -> dict[str, object]:
    """One process's cells: {cell name: what run() gave, or {"wrong": text}}."""
    os.environ["PYTORCH_NPU_ALLOC_CONF"] = settings.conf
    os.environ["ONESIDED_SIM_MACHINE"] = f"matrix-{os.getpid()}"
    cells = Cells(settings, upstream)
    results: dict[str, object] = {}
    for pooling in poolings:
        try:
            results[cell_name(settings, pooling)] = cells.run(pooling)
        except BaseException:
            results[cell_name(settings, pooling)] = {"wrong": traceback.format_exc()}
            break  # what a broken cell leaves behind would break the next ones
    return results


def works(upstream: object) -> Iterator[Callable[[], object]]:
    """What each process does: all cells of its settings, or one cell that is refused at the first contact."""
    for settings in all_settings():
        for poolings in [[one] for one in all_poolings()] if settings.refused else [all_poolings()]:
            yield functools.partial(run_cells, settings, poolings, upstream)


def in_children(works: list[Callable[[], object]], at_once: int) -> Iterator[object]:
    """The results (through JSON) of the works, each in a forked process, in order."""
    with tempfile.TemporaryDirectory() as folder:
        running: dict[int, int] = {}
        waiting = list(enumerate(works))
        while waiting or running:
            while waiting and len(running) < at_once:
                number, work = waiting.pop(0)
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        Path(folder, str(number)).write_text(json.dumps(work()))
                        status = 0
                    finally:
                        os._exit(status)
                running[child] = number
            child, status = os.wait()
            number = running.pop(child)
            if status != 0:
                Path(folder, str(number)).write_text(json.dumps({"process": {"wrong": f"ended with {status:#x}"}}))
        for number in range(len(works)):
            yield json.loads(Path(folder, str(number)).read_text())


def main() -> int:
    combinations = all_settings()
    results: dict[str, object] = {}
    for one in in_children(list(works(upstream)), at_once=2):
        results |= one
    # No setting of the native allocator reaches an aligned pool: same blocks, same statistics under all of them.
    for pooling in all_poolings():
        names = [cell_name(settings, pooling) for settings in combinations if not settings.refused]
        seen = {name: results[name] for name in names if name in results}
        reference = next(iter(seen.values()), None)
        for name, picture in seen.items():
            if not (isinstance(picture, dict) and "wrong" in picture):
                results[name] = "ok" if pooling.alignment is None or picture == reference else {"wrong": "differs"}
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    import onesided.ascend_sim

    onesided.ascend_sim.enable(devices=1, hbm="8GiB")
    import torch
    import torch_npu
    from upstream_library import build_upstream

    import onesided.npu

    def device_used() -> int:
        return onesided.ascend_sim.stats(0).used_bytes

    onesided.npu.install()
    with tempfile.TemporaryDirectory() as place:
        upstream = build_upstream(Path(place))
        sys.exit(main())
