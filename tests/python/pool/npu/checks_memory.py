"""Memory that runs out, caches that give way to each other, statistics, observers. HBM is small here (CHECKS_HBM)."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from npu_session import A, device_used, fill
from torch_npu.npu import MemPool, use_mem_pool

import onesided.ascend_sim
import onesided.npu
from onesided.npu import pool_stats

MIB = 1 << 20


# Field case A06.
def test_a_pool_gives_its_own_cache_back_first(capacity):
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        fill(0.6, capacity)
        frees = onesided.ascend_sim.stats(0).frees
        x = fill(0.7, capacity)
    assert onesided.ascend_sim.stats(0).frees == frees + 1
    assert torch.npu.memory_stats()["num_ooms"] == 0
    del x


def test_other_pools_and_the_native_cache_give_way(capacity):
    first, second = MemPool(sub_block_alignment=A), MemPool(sub_block_alignment=A)
    with use_mem_pool(first):
        fill(0.3, capacity)
    fill(0.4, capacity)
    assert device_used() > capacity * 0.65
    with use_mem_pool(second):
        x = fill(0.8, capacity)
    assert pool_stats(first)["reserved_bytes.current"] == 0
    assert pool_stats(second)["num_ooms"] == 0
    del x


def test_the_native_allocator_gets_our_cache(capacity):
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        kept = torch.ones(10, device="npu:0")
        fill(0.7, capacity)
    ooms = torch.npu.memory_stats()["num_ooms"]
    x = fill(0.8, capacity)
    assert onesided.npu.pool_of(x) is None
    assert torch.npu.memory_stats()["num_ooms"] == ooms, "resolved by a retry, so not counted"
    assert kept.sum().item() == 10
    del x


def test_out_of_memory_says_who_has_it(capacity):
    pool = MemPool(sub_block_alignment=A)
    held = fill(0.5, capacity)
    with use_mem_pool(pool):
        small = torch.empty(3 * MIB, dtype=torch.uint8, device="npu:0")
        with pytest.raises(torch.OutOfMemoryError) as caught:
            fill(0.7, capacity)
    text = str(caught.value)
    assert f"({pool.id[0]}, {pool.id[1]}): {4 * MIB} reserved, {4 * MIB} allocated, 0 overhead" in text
    assert "native allocator" in text
    assert pool_stats(pool)["num_ooms"] == 1
    del held
    with use_mem_pool(pool):
        again = fill(0.7, capacity)
    del again, small


def test_native_out_of_memory_stays_torchs_own_error(capacity):
    with pytest.raises(torch.OutOfMemoryError):
        fill(1.5, capacity)
    pool = MemPool(sub_block_alignment=A)
    with pytest.raises(torch.OutOfMemoryError):
        fill(1.5, capacity)
    del pool


@pytest.mark.parametrize("lends", [False, True])
def test_use_on_oom_lends_the_pools_free_blocks(capacity, lends):
    pool = MemPool(sub_block_alignment=A, use_on_oom=lends, pool_options={"preallocate_bytes": int(capacity * 0.4)})
    with use_mem_pool(pool):
        anchor = torch.empty(MIB, dtype=torch.uint8, device="npu:0")
    held = fill(0.5, capacity)
    ooms = torch.npu.memory_stats()["num_ooms"]
    if lends:
        lent = fill(0.3, capacity)
        assert onesided.npu.pool_of(lent) == pool.id
        assert torch.npu.memory_stats()["num_ooms"] == ooms
        del lent
    else:
        with pytest.raises(torch.OutOfMemoryError):
            fill(0.3, capacity)
    del held, anchor


# Field case A15.
def test_empty_cache_inside_a_pool_and_beside_it(capacity):
    before = torch.npu.memory_reserved()
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.ones(10, device="npu:0")
        torch.empty(50 * MIB, dtype=torch.uint8, device="npu:0")
        torch.npu.empty_cache()
        assert pool_stats(pool)["reserved_bytes.current"] < 50 * MIB
    inside, leave = threading.Event(), threading.Event()

    def other_thread():
        with use_mem_pool(pool):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other_thread)
    thread.start()
    inside.wait()
    torch.empty(5 * MIB, dtype=torch.uint8, device="npu:0")
    torch.npu.empty_cache()
    leave.set()
    thread.join()
    reserved = pool_stats(pool)["reserved_bytes.current"]
    assert torch.npu.memory_reserved() == before + reserved == device_used()
    assert x.sum().item() == 10
    del x


def test_statistics_are_the_sum(capacity):
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_stats()
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu:0")
    after = torch.npu.memory_stats()
    assert after["allocated_bytes.all.current"] - before["allocated_bytes.all.current"] == 4 * MIB
    assert after["requested_bytes.all.current"] - before["requested_bytes.all.current"] == 3 * MIB
    assert after["allocation.all.current"] - before["allocation.all.current"] == 1
    assert torch.npu.max_memory_allocated() - before["allocated_bytes.all.current"] == 4 * MIB
    assert torch.npu.memory_allocated() == after["allocated_bytes.all.current"]
    del x
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    torch.npu.reset_accumulated_memory_stats()
    assert pool_stats(pool)["allocated_bytes.peak"] == 0
    assert pool_stats(pool)["allocated_bytes.freed"] == 0
    assert "PyTorch NPU memory summary" in torch.npu.memory_summary()


def test_memory_fraction_counts_both(capacity):
    pool = MemPool(sub_block_alignment=A)
    held = fill(0.3, capacity)
    torch.npu.set_per_process_memory_fraction(0.5)
    try:
        with use_mem_pool(pool):
            with pytest.raises(torch.OutOfMemoryError, match="memory fraction"):
                fill(0.3, capacity)
            x = fill(0.1, capacity)
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    del held, x


def test_memory_fraction_counts_both_whoever_comes_last(capacity):
    # No cached memory could be freed: the limit applies to the memory held by both allocators.
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        held = fill(0.3, capacity)
    torch.npu.set_per_process_memory_fraction(0.5)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="memory fraction"):
            fill(0.3, capacity)
        x = fill(0.1, capacity)
        assert onesided.npu.pool_of(x) is None
        del held
        y = fill(0.3, capacity)  # the pool's idle segment gives way
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    assert pool_stats(pool)["reserved_bytes.current"] == 0
    del x, y


def busy(stream: torch.npu.Stream) -> None:
    """Work on the stream that lasts a while."""
    big = torch.ones(1200, 1200, device="npu:0")
    with torch.npu.stream(stream):
        for _ in range(6):
            big @ big


def test_blocks_that_wait_for_a_stream_are_waited_for_before_memory_runs_out(capacity):
    first, second = MemPool(sub_block_alignment=A), MemPool(sub_block_alignment=A)
    side = torch.npu.Stream()
    for other in ("aligned", "native"):
        with use_mem_pool(first):
            x = fill(0.6, capacity)
        busy(side)
        x.record_stream(side)
        del x
        if other == "aligned":
            with use_mem_pool(second):
                y = fill(0.6, capacity)
        else:
            y = fill(0.6, capacity)
        del y
        torch.npu.empty_cache()


def test_empty_cache_waits_for_streams(capacity):
    pool, side = MemPool(sub_block_alignment=A), torch.npu.Stream()
    with use_mem_pool(pool):
        x = fill(0.3, capacity)
    busy(side)
    x.record_stream(side)
    del x
    torch.npu.empty_cache()
    assert pool_stats(pool)["reserved_bytes.current"] == 0


def test_released_pools_go_when_their_last_stream_is_done(capacity):
    # Also without a call of empty_cache().
    side = torch.npu.Stream()
    for _ in range(5):
        pool = MemPool(sub_block_alignment=A)
        with use_mem_pool(pool):
            x = torch.empty(7 * MIB, dtype=torch.uint8, device="npu:0")
        busy(side)
        x.record_stream(side)
        del x, pool
        gc.collect()
    torch.npu.synchronize()
    torch.empty(1, device="npu:0")
    assert onesided.npu.pools() == []


def test_caches_of_others_give_way_to_a_preallocation_and_not_to_a_cap(capacity):
    fill(0.7, capacity)
    pool = MemPool(sub_block_alignment=A, pool_options={"preallocate_bytes": int(capacity * 0.5)})
    del pool
    fill(0.6, capacity)
    cached = torch.npu.memory_reserved()
    capped = MemPool(sub_block_alignment=A, pool_options={"max_bytes": 8 * MIB})
    with use_mem_pool(capped), pytest.raises(torch.OutOfMemoryError, match="max_bytes"):
        torch.empty(10 * MIB, dtype=torch.uint8, device="npu:0")
    assert torch.npu.memory_reserved() == cached


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_the_pools_own_garbage_threshold(threshold):
    # garbage_collection_threshold is the native allocator's; an aligned pool has gc_threshold.
    options = {"max_bytes": 64 * MIB, "gc_threshold": threshold}
    pool = MemPool(sub_block_alignment=A, pool_options=options)
    with use_mem_pool(pool):
        torch.empty(30 * MIB, dtype=torch.uint8, device="npu:0")
        with torch.npu.stream(torch.npu.Stream()):
            x = torch.empty(20 * MIB, dtype=torch.uint8, device="npu:0")
    assert pool_stats(pool)["reserved_bytes.current"] == (20 * MIB if threshold else 50 * MIB)
    del x


def test_snapshot_has_frames_and_traces(capacity):
    torch.npu.memory._record_memory_history(max_entries=1000)
    try:
        pool = MemPool(sub_block_alignment=A)
        with use_mem_pool(pool):
            x = torch.empty(10, device="npu:0")
        snapshot = onesided.npu.memory_snapshot()
        (segment,) = [s for s in snapshot["segments"] if tuple(s["segment_pool_id"]) == pool.id]
        assert any("checks_memory" in frame["filename"] for frame in segment["blocks"][0]["frames"])
        actions = [entry["action"] for entry in snapshot["device_traces"][0] if entry["addr"] == x.data_ptr()]
        assert "alloc" in actions
        from torch.cuda import _memory_viz

        assert "category" in _memory_viz.trace_plot(snapshot) or _memory_viz.segment_plot(snapshot)
        del x
    finally:
        torch.npu.memory._record_memory_history(None)


# Field case A21 (a): callbacks, finalizers and four allocating threads.
def test_no_deadlock_between_locks(capacity):
    pool = MemPool(sub_block_alignment=A, pool_options={"max_bytes": 64 * MIB})
    announced = []
    subscription = onesided.npu.subscribe(pool, announced.append, lambda segment: gc.collect())

    class Cycle:
        def __init__(self, tensor):
            self.tensor, self.me = tensor, self

    def work():
        with use_mem_pool(pool):
            for step in range(60):
                Cycle(torch.empty(1 + step * 50_000, dtype=torch.uint8, device="npu:0"))
                try:
                    torch.empty(65 * MIB, dtype=torch.uint8, device="npu:0")
                except torch.OutOfMemoryError:
                    torch.npu.memory_snapshot()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "deadlock"
    subscription.close()
    gc.collect()
    assert pool_stats(pool)["allocation.current"] == 0
    assert announced
