"""What torch_npu's C++ code asks about a block by pointer or handle (collectives, sharing, memory-error recovery, graph
trees): blocks of an aligned pool are answered as the native ones are, or with an error in words, never with a crash."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from allocator_probe import Probe
from npu_session import A
from torch_npu.npu import MemPool, use_mem_pool

import onesided.npu
from onesided.npu import pool_stats

MIB = 1 << 20


@pytest.fixture(scope="module")
def probe() -> Probe:
    return Probe()


@pytest.fixture(params=["aligned", "native"])
def block(request, probe):
    """A c10::DataPtr from an aligned pool, and one from the native allocator, for what must be the same for both."""
    pool = MemPool(sub_block_alignment=A if request.param == "aligned" else None)
    with use_mem_pool(pool):
        data = probe.allocate(3 * MIB)
    owner = onesided.npu.pool_of(probe.address(data))
    assert owner == (pool.id if request.param == "aligned" else None)
    yield data
    torch.npu.synchronize()
    probe.free(data)


def side_stream() -> torch.npu.Stream:
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        torch.ones(1, device="npu:0")
    return stream


def aligned_block(probe, nbytes=3 * MIB):
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        return pool, probe.allocate(nbytes)


def test_a_collectives_handle_outlives_nothing(block, probe):
    # What ProcessGroupHCCL does: keep the handle, note the work, and when the work is done erase its stream.
    handle = probe.block_handle(block)
    assert handle
    side = side_stream()
    work = ctypes.c_void_p(0x1234)
    probe.record_stream(block, side.stream_id, 0)
    probe.record_work(handle, work)
    probe.erase_stream_of_handle(handle, side.stream_id, 0, work)


def test_the_stream_of_a_finished_collective_does_not_hold_the_block(probe):
    for erased in (True, False):
        pool, data = aligned_block(probe)
        handle, side, work = probe.block_handle(data), side_stream(), ctypes.c_void_p(0x1234)
        probe.record_stream(data, side.stream_id, 0)
        probe.record_work(handle, work)
        other_work = ctypes.c_void_p(0x5678)
        probe.erase_stream_of_handle(handle, side.stream_id, 0, work if erased else other_work)
        probe.capture(0, 1)  # no event is made while a graph is captured: what has a stream to wait for stays active
        try:
            probe.free(data)
            assert pool_stats(pool)["active_bytes.current"] == (0 if erased else 4 * MIB)
        finally:
            probe.capture(0, 0)
        torch.npu.synchronize()


def test_a_handle_may_be_used_after_its_block(probe):
    pool, data = aligned_block(probe)
    handle, side, work = probe.block_handle(data), side_stream(), ctypes.c_void_p(0x1234)
    probe.record_work(handle, work)
    probe.free(data)
    with use_mem_pool(pool):
        successor = probe.allocate(3 * MIB)
    assert probe.block_handle(successor) == handle, "the same address again"
    probe.record_stream(successor, side.stream_id, 0)
    probe.erase_stream_of_handle(handle, side.stream_id, 0, work)
    probe.capture(0, 1)
    probe.free(successor)
    assert pool_stats(pool)["active_bytes.current"] == 4 * MIB, "the work was of the block before"
    probe.capture(0, 0)
    torch.npu.synchronize()
    del pool
    torch.npu.empty_cache()
    assert onesided.npu.pools() == []
    probe.record_work(handle, work)
    probe.erase_stream_of_handle(handle, side.stream_id, 0, work)


def test_streams_are_erased(block, probe):
    side = side_stream()
    probe.record_stream(block, side.stream_id, 0)
    probe.erase_stream(block, side.stream_id, 0)


def test_an_erased_stream_does_not_hold_the_block(probe):
    pool, data = aligned_block(probe)
    side = side_stream()
    probe.record_stream(data, side.stream_id, 0)
    with torch.npu.stream(side):
        probe.erase_stream(data, side.stream_id, 0)  # not the block's own stream: nothing has waited for the side
    probe.capture(0, 1)
    try:
        probe.erase_stream(data, side.stream_id, 0)
        probe.free(data)
        assert pool_stats(pool)["active_bytes.current"] == 0
    finally:
        probe.capture(0, 0)


def test_base_allocation(block, probe):
    nbytes = ctypes.c_uint64()
    address = probe.address(block)
    base = probe.base_allocation(address, ctypes.byref(nbytes))
    assert base % A == 0 and nbytes.value % A == 0
    assert base <= address and address + 3 * MIB <= base + nbytes.value


def test_aligned_addresses_inside_blocks(block, probe):
    for kib in (1, 16):
        data = probe.allocate_aligned(1000, kib)
        assert probe.address(data) % (kib << 10) == 0
        probe.free(data)


_IMPORTER = """
import ctypes, sys
import onesided.ascend_sim
onesided.ascend_sim.enable(devices=2)
import torch, torch_npu
import onesided.npu
onesided.npu.install()
torch.npu.set_device(0)
torch.empty(1, device="npu:0")
sys.path.insert(0, {here!r})
from allocator_probe import Probe
handle = bytes.fromhex({handle!r})
base = Probe().import_handle(ctypes.c_char_p(handle), len(handle))
print(ctypes.string_at(base + {offset}, 16).hex())
"""


def test_another_process_reads_a_shared_block(block, probe):
    address, offset, handle = probe.address(block), ctypes.c_int64(), ctypes.create_string_buffer(512)
    torch.npu.synchronize()
    ctypes.memmove(address, bytes(range(16)), 16)  # simulated device memory is mapped in the host
    length = probe.share(address, handle, len(handle), ctypes.byref(offset))
    again = probe.share(address, handle, len(handle), ctypes.byref(offset))
    assert length == again > 2
    program = _IMPORTER.format(here=str(Path(__file__).parent), handle=handle.raw[:length].hex(), offset=offset.value)
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=os.environ, capture_output=True, text=True, timeout=300
    )
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.split()[-1] == bytes(range(16)).hex()


def test_an_export_ends_with_its_segment(probe):
    offset, handle = ctypes.c_int64(), ctypes.create_string_buffer(512)
    pool, data = aligned_block(probe)
    probe.share(probe.address(data), handle, len(handle), ctypes.byref(offset))
    first = handle.raw
    probe.free(data)
    torch.npu.empty_cache()
    with use_mem_pool(pool):
        data = probe.allocate(3 * MIB)
    probe.share(probe.address(data), handle, len(handle), ctypes.byref(offset))
    assert handle.raw != first, "a new segment has a key of its own"
    probe.free(data)


def test_blocks_are_marked_after_a_memory_error(block, probe):
    assert probe.is_safe(block)
    probe.mark_all_unsafe(0)
    assert not probe.is_safe(block)
    probe.mark_safe(block)
    assert probe.is_safe(block)


def test_a_mark_ends_with_its_block(probe):
    pool, data = aligned_block(probe)
    address = probe.address(data)
    probe.mark_all_unsafe(0)
    probe.free(data)
    with use_mem_pool(pool):
        successor = probe.allocate(3 * MIB)
    assert probe.address(successor) == address
    assert probe.is_safe(successor)
    probe.free(successor)


def test_memory_errors_are_looked_for_beside_aligned_pools(block, probe):
    assert not probe.memory_error_in_pools(0)


def test_after_a_device_reset_no_event_is_waited_for(probe):
    pool, data = aligned_block(probe)
    probe.record_stream(data, side_stream().stream_id, 0)
    probe.capture(0, 1)
    probe.free(data)
    probe.capture(0, 0)
    assert pool_stats(pool)["active_bytes.current"] == 4 * MIB
    probe.clean_events()
    assert pool_stats(pool)["active_bytes.current"] == 0


def test_graph_trees_cannot_checkpoint_an_aligned_pool(probe):
    pool = MemPool(sub_block_alignment=A)
    with pytest.raises(RuntimeError, match="graph trees cannot checkpoint an aligned pool"):
        probe.checkpoint(0, *pool.id)


def test_live_blocks_are_known(probe):
    pool, data = aligned_block(probe)
    one = (ctypes.c_void_p * 1)(probe.address(data))
    other = (ctypes.c_void_p * 1)(probe.address(data) + A)
    assert probe.live_blocks_are(0, *pool.id, one, 1)
    assert not probe.live_blocks_are(0, *pool.id, other, 1)
    assert not probe.live_blocks_are(0, *pool.id, one, 0)
    probe.free(data)
    assert probe.live_blocks_are(0, *pool.id, one, 0)


def test_nothing_is_freed_or_waited_for_during_a_capture(probe):
    pool, data = aligned_block(probe)
    probe.record_stream(data, side_stream().stream_id, 0)
    probe.capture(0, 1)
    try:
        probe.free(data)
        with use_mem_pool(pool):
            second = probe.allocate(3 * MIB)
        torch.npu.empty_cache()
        assert pool_stats(pool)["segment.current"] == 2, "the recorded block is not reused, nothing goes back"
        probe.free(second)
        torch.npu.empty_cache()
        assert pool_stats(pool)["segment.current"] == 2
    finally:
        probe.capture(0, 0)
    torch.npu.synchronize()
    torch.npu.empty_cache()
    assert pool_stats(pool)["segment.current"] == 0


def test_a_foreign_pointer_is_an_error(probe):
    _pool, data = aligned_block(probe)
    inner = probe.address(data) + 512
    for call in (
        lambda: probe.base_allocation(0x1000, ctypes.byref(ctypes.c_uint64())),
        lambda: probe.share(0x1000, None, 0, None),
    ):
        with pytest.raises(RuntimeError):
            call()
    nbytes = ctypes.c_uint64()
    assert probe.base_allocation(inner, ctypes.byref(nbytes)) == probe.address(data), "any address inside will do"
    probe.free(data)
