"""Forms A and B, the rules of alignment and charge, nesting, lifetime of pools: what a user writes, verbatim."""

from __future__ import annotations

import ctypes
import gc

import pytest
import torch
import torch_npu
from npu_session import A, device_used
from torch_npu.npu import MemPool, use_mem_pool

import onesided.npu
from onesided.npu import pool_segments, pool_stats


def make_tensors():
    npu = "npu:0"
    return {
        "zeros": torch.zeros((1024, 128), dtype=torch.bfloat16, device=npu),
        "empty": torch.empty(5, device=npu),
        "ones": torch.ones(3_000_000, device=npu),
        "full": torch.full((7, 3), 2.5, device=npu),
        "Parameter": torch.nn.Parameter(torch.empty(10, 10, device=npu)),
        "arange": torch.arange(10, device=npu),
        "randn": torch.randn(100, device=npu),
        "cat": torch.cat([torch.ones(3, device=npu), torch.ones(4, device=npu)]),
        "to": torch.ones(10).to(npu),
        "npu()": torch.ones(10).npu(),
        "add": torch.ones(10, device=npu) + 1,
        "Linear": torch.nn.Linear(8, 8).to(npu).weight,
    }


def assert_aligned(tensors, alignment=A):
    for name, tensor in tensors.items():
        assert tensor.data_ptr() % alignment == 0, name
        assert tensor.untyped_storage().data_ptr() % alignment == 0, name


def test_form_a_without_an_allocator():
    pool = MemPool(sub_block_alignment=2 * 1024 * 1024)
    with use_mem_pool(pool):
        tensors = make_tensors()
    assert_aligned(tensors)
    assert tensors["cat"].tolist() == [1.0] * 7
    assert tensors["full"].cpu().eq(2.5).all()
    assert torch.empty(5, device="npu:0").data_ptr() % 512 == 0


def test_form_a_verbatim_with_the_users_library(upstream):
    before = upstream.allocs - upstream.frees
    allocator = torch_npu.npu.NPUPluggableAllocator(upstream.path, "mc_ascend_malloc", "mc_ascend_free")
    pool = torch_npu.npu.MemPool(allocator.allocator(), sub_block_alignment=2 * 1024 * 1024)
    with torch_npu.npu.use_mem_pool(pool):
        x = torch.zeros((1024, 128), dtype=torch.bfloat16, device="npu:0")
    assert x.data_ptr() % (2 * 1024 * 1024) == 0
    assert upstream.allocs - upstream.frees == before + 1
    del x, pool
    gc.collect()
    assert upstream.allocs - upstream.frees == before
    assert upstream.wrong == 0


def test_form_b_aligns_every_pool_made_with_it(upstream):
    allocator = upstream.allocator(sub_block_alignment=A)
    pool = MemPool(allocator.allocator())
    with use_mem_pool(pool):
        assert_aligned(make_tensors())
    finer = MemPool(allocator.allocator(), sub_block_alignment=4096)
    with use_mem_pool(finer):
        both = [torch.empty(1, device="npu:0") for _ in range(2)]
    assert both[1].data_ptr() - both[0].data_ptr() in (4096, -4096), "the pool's value wins"
    assert MemPool(allocator.allocator(), sub_block_alignment=0).id not in onesided.npu.pools()


def test_form_b_as_the_current_allocator_covers_both_devices(upstream):
    allocator = upstream.allocator(sub_block_alignment=A)
    torch.empty(1000, device="npu:0")
    before = upstream.allocs
    torch_npu.npu.change_current_allocator(allocator)
    try:
        assert_aligned(make_tensors())
        other = torch.ones(5, device="npu:1")
        assert other.data_ptr() % A == 0
        assert upstream.allocs > before
        native = MemPool()
        with use_mem_pool(native):
            own = [torch.empty(1, device="npu:0") for _ in range(2)]
        assert any(tensor.data_ptr() % A for tensor in own), "a pool of the native allocator stays native"
        del other, own
    finally:
        onesided.npu.uninstall()
        onesided.npu.install()
    assert upstream.wrong == 0


def test_plain_allocators_still_swap_only_before_first_use(upstream):
    with pytest.raises(RuntimeError):
        torch_npu.npu.change_current_allocator(upstream.allocator())
    assert MemPool(sub_block_alignment=A).id in onesided.npu.pools()


@pytest.mark.parametrize("alignment", [4096, 65536, A, 4 << 20, 64 << 20])
def test_charge_is_the_rounded_request(alignment):
    pool = MemPool(sub_block_alignment=alignment)
    sizes = [1, 4095, 4096, 1 << 20, (1 << 20) + 1, 3 << 20, A, 5 << 20]
    with use_mem_pool(pool):
        tensors = [torch.empty(size, dtype=torch.uint8, device="npu:0") for size in sizes]
    assert all(tensor.data_ptr() % alignment == 0 for tensor in tensors)
    stats = pool_stats(pool)
    charged = sum(-(-size // alignment) * alignment for size in sizes)
    assert stats["allocated_bytes.current"] == charged
    assert stats["requested_bytes.current"] == sum(sizes)
    assert stats["reserved_bytes.current"] <= charged + stats["overhead_bytes.current"] + (32 << 20)


@pytest.mark.parametrize("custom", [False, True], ids=["default", "custom"])
def test_kernels_may_read_past_the_last_block(custom, upstream):
    # Exact multiples leave no slack of their own, and behind the segment nothing is mapped.
    pool = MemPool(upstream.allocator().allocator() if custom else None, sub_block_alignment=A)
    with use_mem_pool(pool):
        tensors = [torch.zeros(A, dtype=torch.uint8, device="npu:0") for _ in range(8)]
    torch.npu.synchronize()
    ends = [segment["address"] + segment["nbytes"] for segment in pool_segments(pool)]
    assert max(x.data_ptr() for x in tensors) + A in ends
    for end in ends:
        assert ctypes.string_at(end, 32) == bytes(32), "simulated device memory is mapped in the host"
    stats = pool_stats(pool)
    assert stats["overhead_bytes.current"] == (A * len(ends) if custom else 0), "at most an alignment a segment"
    without = MemPool(upstream.allocator().allocator(), sub_block_alignment=A, pool_options={"guard_bytes": 0})
    with use_mem_pool(without):
        exact = torch.zeros(A, dtype=torch.uint8, device="npu:0")
    assert pool_stats(without)["reserved_bytes.current"] == A
    del exact


def test_three_mebibytes_do_not_cost_twenty():
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.empty(3 << 20, dtype=torch.uint8, device="npu:0")
    assert pool_stats(pool)["reserved_bytes.current"] == 4 << 20
    del x


@pytest.mark.parametrize("bad", [1, 3, 32, 256, 512, 2048, A + 512, -1, 2 << 30, 1 << 63, 1 << 70])
def test_bad_alignments_are_refused_at_construction(bad, upstream):
    for construct in (lambda: MemPool(sub_block_alignment=bad), lambda: upstream.allocator(sub_block_alignment=bad)):
        with pytest.raises(ValueError, match=f"{bad}.*power of two"):
            construct()


@pytest.mark.parametrize("bad", [2.0, "2097152", True, [A]])
def test_alignments_are_ints(bad):
    with pytest.raises(TypeError, match="sub_block_alignment"):
        MemPool(sub_block_alignment=bad)


@pytest.mark.parametrize("off", [None, 0])
def test_off_is_the_vendors_pool(off):
    pool = MemPool(sub_block_alignment=off)
    assert onesided.npu.pools() == []
    with use_mem_pool(pool):
        pair = [torch.empty(10, device="npu:0") for _ in range(2)]
    assert pair[1].data_ptr() - pair[0].data_ptr() == 512


def test_pool_options_reach_the_pool():
    pool = MemPool(sub_block_alignment=A, pool_options={"max_bytes": 8 << 20, "preallocate_bytes": 4 << 20})
    assert pool_stats(pool)["reserved_bytes.current"] == 4 << 20
    with use_mem_pool(pool), pytest.raises(torch.OutOfMemoryError, match="max_bytes"):
        torch.empty(10 << 20, dtype=torch.uint8, device="npu:0")
    with pytest.raises(ValueError, match="preallocate_bytes"):
        MemPool(sub_block_alignment=A, pool_options={"max_bytes": 1 << 20, "preallocate_bytes": 4 << 20})
    with pytest.raises(ValueError, match="sub_block_alignment"):
        MemPool(pool_options={"max_bytes": 1})
    with pytest.raises(TypeError):
        MemPool(sub_block_alignment=A, pool_options={"no_such_option": 1})


def test_a_failed_construction_leaves_no_word_for_the_next_pool():
    with pytest.raises(torch.OutOfMemoryError):
        MemPool(sub_block_alignment=A, pool_options={"preallocate_bytes": 1 << 40})
    assert MemPool().id not in onesided.npu.pools()


def test_use_count_id_and_snapshot_keep_their_meaning():
    pool, native = MemPool(sub_block_alignment=A), MemPool()
    assert pool.use_count() == native.use_count() == 1
    with use_mem_pool(pool):
        assert pool.use_count() == 2
        x = torch.empty(3 << 20, dtype=torch.uint8, device="npu:0")
    assert pool.use_count() == 1
    (segment,) = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    assert segment["address"] % A == 0
    (block,) = segment["blocks"]
    assert (block["address"], block["size"], block["requested_size"]) == (x.data_ptr(), 4 << 20, 3 << 20)
    assert block["state"] == "active_allocated"
    assert native.snapshot() == []
    assert segment["address"] in [s["address"] for s in torch.npu.memory_snapshot()]


def test_no_split_gives_each_tensor_its_segment():
    pool = MemPool(sub_block_alignment=A, no_split=True)
    with use_mem_pool(pool):
        tensors = [torch.empty(3 << 20, dtype=torch.uint8, device="npu:0") for _ in range(3)]
    assert [segment["total_size"] for segment in pool.snapshot()] == [4 << 20] * 3
    del tensors


# Field case A11.
def test_nesting_and_exceptions():
    first, second = MemPool(sub_block_alignment=A), MemPool(sub_block_alignment=4096)

    def owner(tensor):
        return onesided.npu.pool_of(tensor)

    def new():
        return torch.empty(10, device="npu:0")

    with use_mem_pool(first):
        a = new()
        with pytest.raises(KeyError), use_mem_pool(second):
            b = new()
            with use_mem_pool(first):
                c = new()
                raise KeyError
        d = new()
    e = new()
    assert [owner(t) for t in (a, b, c, d, e)] == [first.id, second.id, first.id, first.id, None]
    (segment,) = second.snapshot()
    assert [block["address"] for block in segment["blocks"] if block["state"] == "active_allocated"] == [b.data_ptr()]


def test_native_and_aligned_pools_nest_both_ways():
    aligned, native = MemPool(sub_block_alignment=A), MemPool()
    with use_mem_pool(aligned), use_mem_pool(native):
        inner = [torch.empty(10, device="npu:0") for _ in range(2)]
    with use_mem_pool(native), use_mem_pool(aligned):
        outer = torch.empty(10, device="npu:0")
    assert onesided.npu.pool_of(inner[0]) is None
    assert inner[1].data_ptr() - inner[0].data_ptr() == 512
    assert onesided.npu.pool_of(outer) == aligned.id


# Field case A10.
def test_temporary_pools(upstream):
    with use_mem_pool(MemPool(upstream.allocator().allocator(), sub_block_alignment=A)):
        x = torch.ones(10, device="npu:0")
    assert x.sum().item() == 10
    with use_mem_pool(MemPool(sub_block_alignment=A)):
        y = torch.ones(10, device="npu:0")
        with use_mem_pool(MemPool(sub_block_alignment=A)):
            pass
    assert y.sum().item() == 10
    del x, y
    gc.collect()
    assert upstream.allocs == upstream.frees
    assert onesided.npu.pools() == []


# Field case A09.
def test_tensors_outlive_their_pool(upstream):
    before = (upstream.allocs, upstream.frees)
    pool = MemPool(upstream.allocator().allocator(), sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.zeros(100, device="npu:0")
    del pool
    gc.collect()
    torch.npu.empty_cache()
    x += 3
    assert x.sum().item() == 300
    assert upstream.frees == before[1]
    del x
    torch.npu.empty_cache()
    assert (upstream.allocs, upstream.frees) == (before[0] + 1, before[1] + 1)
    assert upstream.wrong == 0


# Field case A13.
def test_a_pool_belongs_to_its_device():
    pool = MemPool(sub_block_alignment=A)
    with torch.npu.device(1):
        with pytest.raises(ValueError, match=r"npu:0.*npu:1"), use_mem_pool(pool):
            pass
        with use_mem_pool(pool, device=0):
            there = torch.empty(10, device="npu:1")
            here = torch.empty(10, device="npu:0")
    assert onesided.npu.pool_of(there) is None
    assert onesided.npu.pool_of(here) == pool.id


# Field case A14.
def test_pools_leave_nothing_behind():
    def cycle():
        pool = MemPool(sub_block_alignment=A, no_split=True)
        with use_mem_pool(pool):
            torch.empty(10, device="npu:0")

    def resident_bytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    for _ in range(500):
        cycle()
    gc.collect()
    before = resident_bytes()
    for _ in range(2000):
        cycle()
    gc.collect()
    assert resident_bytes() - before < 1 << 20
    assert onesided.npu.pools() == []
    plain = MemPool()
    with use_mem_pool(plain):
        pair = [torch.empty(128, device="npu:0") for _ in range(2)]
    assert len(plain.snapshot()) == 1, "the option of an earlier pool was inherited"
    del pair


def test_uninstall_waits_for_the_last_pool_and_restores_torch_npu():
    own_init = MemPool.__init__
    pool = MemPool(sub_block_alignment=A)
    with pytest.raises(RuntimeError, match="still in use"):
        onesided.npu.uninstall()
    assert MemPool.__init__ is own_init
    del pool
    gc.collect()
    onesided.npu.uninstall()
    assert not onesided.npu.installed()
    assert MemPool.__init__ is not own_init
    with pytest.raises(TypeError):
        MemPool(sub_block_alignment=A)
    x = torch.empty(10, device="npu:0")
    onesided.npu.install()
    del x


def test_the_devices_own_counter_agrees():
    torch.npu.empty_cache()
    pools = [MemPool(sub_block_alignment=a) for a in (A, 4096, 4 << 20)]
    live = []
    for step in range(300):
        if live and step % 3 == 2:
            del live[step * 7 % len(live)]
        elif step % 4 == 3:
            live.append(torch.empty(1 + step * 40_009, dtype=torch.uint8, device="npu:0"))
        else:
            with use_mem_pool(pools[step % 3]):
                live.append(torch.empty(1 + step * 30_011, dtype=torch.uint8, device="npu:0"))
        if step % 50 == 49:
            torch.npu.empty_cache()
        assert torch.npu.memory_reserved() == device_used()
    reserved = sum(pool_stats(pool)["reserved_bytes.current"] for pool in pools)
    assert 0 < reserved < torch.npu.memory_reserved()
