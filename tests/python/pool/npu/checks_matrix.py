"""The interplay matrix: each cell asserts what docs/aligned_pools.md says. This process has one PYTORCH_NPU_ALLOC_CONF
(started by test_npu_pools.py for each); the other dimensions are here."""

from __future__ import annotations

import itertools
import os

import pytest
import torch
from npu_session import A, device_used
from torch_npu.npu import MemPool, use_mem_pool

import onesided.npu
from onesided.npu import pool_stats

CONF = os.environ.get("PYTORCH_NPU_ALLOC_CONF", "")
MIB = 1 << 20


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("custom", [False, True], ids=["default", "custom"])
@pytest.mark.parametrize("alignment", [None, 4096, A, 4 * MIB])
def test_cell(alignment, custom, streams, upstream):
    before = upstream.allocs
    allocator = upstream.allocator().allocator() if custom else None
    if alignment is None and custom and "expandable_segments:True" in CONF:
        pytest.skip("torch_npu ignores a pool's own allocator with expandable segments: its cell, not ours")
    pool = MemPool(allocator, sub_block_alignment=alignment)
    queues = [torch.npu.current_stream(), *(torch.npu.Stream() for _ in range(streams - 1))]
    live = []
    for step in range(120):
        with torch.npu.stream(queues[step % streams]):
            if live and step % 3 == 2:
                del live[step * 5 % len(live)]
            else:
                with use_mem_pool(pool):
                    live.append(torch.empty(1 + step * 25_013, dtype=torch.uint8, device="npu:0"))
                if streams > 1:
                    live[-1].record_stream(queues[(step + 1) % streams])
    addresses = sorted((t.data_ptr(), t.nbytes) for t in live)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(addresses)), "overlap"
    if alignment is not None:
        # The native allocator's settings say nothing about an aligned pool: its blocks are aligned, its charges exact, its
        # memory from its own source.
        assert all(a % alignment == 0 for a, _ in addresses)
        stats = pool_stats(pool)
        assert stats["allocated_bytes.current"] == sum(-(-n // alignment) * alignment for _, n in addresses)
        assert (upstream.allocs > before) == custom
        assert all(not segment["is_expandable"] for segment in pool.snapshot())
    outside = [torch.empty(1000, device="npu:0") for _ in range(2)]
    assert all(onesided.npu.pool_of(t) is None for t in outside)
    del live, pool, outside
    torch.npu.synchronize()
    torch.npu.empty_cache()
    assert upstream.allocs == upstream.frees
    assert upstream.wrong == 0
    assert onesided.npu.pools() == []
    assert torch.npu.memory_reserved() == device_used()


@pytest.mark.skipif("expandable_segments" not in CONF, reason="this process runs without growable segments")
def test_native_blocks_stay_growable_beside_an_aligned_pool(upstream):
    # Field case A16.
    pool = MemPool(upstream.allocator().allocator(), sub_block_alignment=A)
    with pytest.raises(KeyError), use_mem_pool(pool):
        inside = torch.empty(3 * MIB, dtype=torch.uint8, device="npu:0")
        raise KeyError
    outside = torch.empty(30 * MIB, dtype=torch.uint8, device="npu:0")
    assert inside.data_ptr() % A == 0
    (segment,) = [
        s for s in torch.npu.memory_snapshot() if s["address"] <= outside.data_ptr() < s["address"] + s["total_size"]
    ]
    assert segment["is_expandable"]
    del inside, outside


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_the_pools_own_threshold(threshold):
    # garbage_collection_threshold is the native allocator's; an aligned pool has gc_threshold.
    options = {"max_bytes": 64 * MIB, "gc_threshold": threshold}
    pool = MemPool(sub_block_alignment=A, pool_options=options)
    with use_mem_pool(pool):
        torch.empty(30 * MIB, dtype=torch.uint8, device="npu:0")
        with torch.npu.stream(torch.npu.Stream()):
            x = torch.empty(20 * MIB, dtype=torch.uint8, device="npu:0")
    assert pool_stats(pool)["reserved_bytes.current"] == (20 * MIB if threshold else 50 * MIB)
    del x
