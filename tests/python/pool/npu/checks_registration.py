"""Segments are announced, and registered with engines: those of aligned pools before their first tensor, torch_npu's own
when a tensor in them is added; all of them deregistered before their memory goes. HBM is small here (CHECKS_HBM)."""

from __future__ import annotations

import contextlib
import gc
import threading
import time

import pytest
import torch
from npu_session import A, fill
from torch_npu.npu import MemPool, use_mem_pool

import onesided
import onesided.npu
from onesided.npu import pool_stats

MIB = 1 << 20


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


def test_a_registration_lives_as_long_as_its_engine(capacity):
    engine, pool = Engine(), MemPool(sub_block_alignment=A)
    onesided.npu.register_pool(engine, pool)
    gc.collect()
    with use_mem_pool(pool):
        x = torch.empty(10, device="npu:0")
    assert len(engine.regions) == 1
    regions = engine.regions
    del engine
    gc.collect()
    with use_mem_pool(pool):
        y = torch.empty(50 * MIB, dtype=torch.uint8, device="npu:0")
    assert len(regions) == 1, "the registration has ended"
    del x, y


def test_memory_under_a_transfer_stays(capacity):
    class Busy(Engine):
        busy = True

        def deregister_mem(self, handle):
            if self.busy:
                raise RuntimeError("a transfer is under way")
            super().deregister_mem(handle)

    engine, pool = Busy(), MemPool(sub_block_alignment=A)
    with onesided.npu.register_pool(engine, pool) as joined:
        with use_mem_pool(pool):
            torch.empty(10 * MIB, dtype=torch.uint8, device="npu:0")
        torch.npu.empty_cache()
        assert pool_stats(pool)["reserved_bytes.current"] == 10 * MIB
        assert len(joined.failures) == 1 and "under way" in joined.failures[0]
        engine.busy = False
        torch.npu.empty_cache()
        assert pool_stats(pool)["reserved_bytes.current"] == 0
        assert engine.regions == {}


def test_a_refused_registration_says_so(capacity):
    class Refusing(Engine):
        def register_mem(self, address, nbytes, kind):
            raise RuntimeError("the table is full")

    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.empty(10, device="npu:0")
    with pytest.raises(RuntimeError, match="the table is full"):
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


@pytest.fixture
def peers():
    """Two engines, the second connected to the first."""
    with onesided.Engine("127.0.0.1:0") as owner, onesided.Engine("127.0.0.1:0") as reader:
        reader.connect(owner.id)
        yield owner, reader


def test_native_segments_are_registered_once_and_until_torch_npu_frees_them(capacity, peers):
    owner, _ = peers
    with onesided.npu.register_native(owner) as joined:
        tensors = [torch.ones(1000, device="npu:0") for _ in range(5)]
        segments = {joined.add(tensor)["address"] for tensor in tensors}
        assert joined.segments == joined.registrations == len(segments)
        big = torch.empty(30 * MIB, dtype=torch.uint8, device="npu:0")
        place = joined.add(big)
        assert place["address"] <= big.data_ptr() < place["address"] + place["nbytes"]
        del big
        made = joined.registrations
        again = torch.empty(30 * MIB, dtype=torch.uint8, device="npu:0")
        assert joined.add(again) == place
        assert joined.registrations == made
        del again
        torch.npu.empty_cache()
        assert joined.segments == len(segments)
        del tensors
        torch.npu.empty_cache()
        assert joined.segments == 0
        assert joined.failures == []
    with pytest.raises(RuntimeError, match="closed"):
        joined.add(torch.ones(1, device="npu:0"))


def test_native_segments_that_make_room_are_deregistered_too(capacity, peers):
    # Not empty_cache() but the allocator itself frees it, in the middle of an allocation.
    owner, reader = peers
    with onesided.npu.register_native(owner) as joined:
        first = torch.ones(int(capacity * 0.5) // 4, device="npu:0")
        joined.add(first)
        target = onesided.host_pool(4096)
        handle = reader.register_mem(target.addr, 4096)
        remote = reader.import_desc(owner.describe([(first.data_ptr(), 4096)]))
        bound = remote.pairs([(target.addr, 0, 0, 4096)])
        torch.npu.synchronize()
        reader.transfer_sync(owner.id, "READ", bound)
        assert target.numpy().view("float32")[0] == 1.0
        del first
        second = fill(0.8, capacity)
        assert joined.segments == 0
        with pytest.raises(onesided.EngineError) as caught:
            reader.transfer_sync(owner.id, "READ", bound)
        assert caught.value.status == onesided.Status.STALE
        reader.deregister_mem(handle)
        del second


def test_native_registration_takes_our_engine_and_native_tensors(capacity, peers):
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        ours = torch.ones(10, device="npu:0")
    with onesided.npu.register_native(peers[0]) as joined, pytest.raises(ValueError, match="register_pool"):
        joined.add(ours)
    with pytest.raises(TypeError):
        onesided.npu.register_native(Engine())
    del ours


def test_native_segments_come_and_go_while_threads_allocate(capacity, peers):
    # T0..T3: allocate, add, free, empty_cache | main: opens and closes registrations -> no deadlock, nothing left.
    owner, _ = peers
    stop = threading.Event()
    wrong: list[BaseException] = []

    def work(number):
        try:
            while not stop.is_set():
                x = torch.empty((2 + number) * MIB, dtype=torch.uint8, device="npu:0")
                with contextlib.suppress(RuntimeError):  # closed meanwhile
                    shared[0].add(x)
                del x
                torch.npu.empty_cache()
        except BaseException as error:
            wrong.append(error)

    shared = [onesided.npu.register_native(owner)]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        while shared[0].registrations < 3 and not wrong:
            time.sleep(0)
        before, shared[0] = shared[0], onesided.npu.register_native(owner)
        before.close()
        assert before.segments == 0
    stop.set()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "deadlock"
    shared[0].close()
    assert wrong == []
    assert owner.stats()["regions"] == 0
