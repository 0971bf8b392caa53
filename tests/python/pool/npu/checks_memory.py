"""Memory that runs out, caches that give way to each other, statistics, observers. HBM is small here (CHECKS_HBM)."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from npu_session import A, device_used
from torch_npu.npu import MemPool, use_mem_pool

import onesided.ascend_sim
import onesided.npu
from onesided.npu import pool_stats

MIB = 1 << 20


@pytest.fixture
def capacity() -> int:
    torch.npu.empty_cache()
    return onesided.ascend_sim.stats(0).capacity_bytes


def fill(share: float, capacity: int) -> torch.Tensor:
    return torch.empty(int(capacity * share), dtype=torch.uint8, device="npu:0")


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
    assert torch.npu.memory_stats()["num_ooms"] == ooms, "cured, so nobody heard of it"
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


def test_segments_are_announced_to_python(capacity):
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.empty(10, device="npu:0")
    events = []
    with onesided.npu.subscribe(
        pool,
        lambda segment: events.append(("added", segment["address"], torch.npu.memory_allocated() > 0)),
        lambda segment: events.append(("dropped", segment["address"], None)),
    ):
        assert len(events) == 1
        with use_mem_pool(pool):
            y = torch.empty(50 * MIB, dtype=torch.uint8, device="npu:0")
        assert [event[0] for event in events] == ["added", "added"]
        address = y.data_ptr()
        del y
        torch.npu.empty_cache()
        assert events[-1] == ("dropped", address, None)
    with use_mem_pool(pool):
        torch.empty(50 * MIB, dtype=torch.uint8, device="npu:0")
    assert len(events) == 3
    del x


class Engine:
    """Counts what an engine would be asked."""

    def __init__(self) -> None:
        self.regions: dict[int, tuple[int, int]] = {}
        self.made = 0

    def register_mem(self, address, nbytes, kind):
        assert kind == "device"
        assert address % A == 0 and nbytes % A == 0
        self.made += 1
        self.regions[self.made] = (address, nbytes)
        return self.made

    def deregister_mem(self, handle):
        del self.regions[handle]


def test_register_pool_registers_each_segment_once(capacity):
    engine, pool = Engine(), MemPool(sub_block_alignment=A)
    with onesided.npu.register_pool(engine, pool) as joined:
        for update in range(20):
            with use_mem_pool(pool):
                weights = [torch.full((1000,), float(update), device="npu:0") for _ in range(10)]
            if update == 0:
                made = joined.registrations
            assert all(
                any(base <= w.data_ptr() and w.data_ptr() + 4000 <= base + n for base, n in engine.regions.values())
                for w in weights
            )
            del weights
        assert joined.registrations == made == engine.made
        torch.npu.empty_cache()
        assert engine.regions == {}
        assert joined.failures == []
        with use_mem_pool(pool):
            x = torch.empty(10, device="npu:0")
        assert joined.segments == 1
    assert engine.regions == {}
    del x


def test_a_refused_registration_says_so(capacity):
    class Refusing(Engine):
        def register_mem(self, address, nbytes, kind):
            raise RuntimeError("no room in the table")

    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.empty(10, device="npu:0")
    with pytest.raises(RuntimeError, match="no room in the table"):
        onesided.npu.register_pool(Refusing(), pool)
    del x


def test_native_segment_of_both_kinds(capacity):
    torch.npu.empty_cache()
    native = [torch.empty(100, device="npu:0") for _ in range(2)]
    base, nbytes = onesided.npu.native_segment(native[1].data_ptr())
    assert base % A == 0 and nbytes % A == 0 and base <= native[0].data_ptr() < base + nbytes
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        ours = torch.empty(100, device="npu:0")
    assert onesided.npu.native_segment(ours.data_ptr()) == (ours.data_ptr(), A)
    with pytest.raises(RuntimeError):
        onesided.npu.native_segment(12345)
    del native, ours


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
