"""Streams, threads, autograd, collectives' handles, sharing: what happens to blocks between birth and end."""

from __future__ import annotations

import threading

import torch
import torch_npu
from npu_session import A
from torch_npu.npu import MemPool, use_mem_pool

import onesided.npu
from onesided.npu import pool_stats


def one(pool):
    with use_mem_pool(pool):
        return torch.empty(A, dtype=torch.uint8, device="npu:0")


def test_reuse_is_at_once_on_the_same_stream_only():
    pool = MemPool(sub_block_alignment=A)
    x = one(pool)
    address = x.data_ptr()
    del x
    with torch.npu.stream(torch.npu.Stream()):
        assert one(pool).data_ptr() != address
    assert one(pool).data_ptr() == address


def test_a_recorded_block_is_right_and_comes_back():
    pool = MemPool(sub_block_alignment=A)
    side = torch.npu.Stream()
    for round_number in range(30):
        with use_mem_pool(pool):
            source = torch.full((256, 1024), float(round_number), device="npu:0")
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            copy = source * 2
        source.record_stream(side)
        del source
        with use_mem_pool(pool):
            torch.full((256, 1024), -1.0, device="npu:0")
        torch.npu.current_stream().wait_stream(side)
        assert copy.eq(2.0 * round_number).all().item(), round_number
    torch.npu.synchronize()
    with use_mem_pool(pool):
        torch.empty(1, device="npu:0")
    assert pool_stats(pool)["active_bytes.current"] == 0
    assert pool_stats(pool)["segment.current"] <= 4


def test_any_thread_may_free_and_pools_are_per_thread():
    pool = MemPool(sub_block_alignment=A)
    box = []
    with use_mem_pool(pool):
        x = torch.ones(10, device="npu:0")
        thread = threading.Thread(target=lambda: box.append(torch.ones(10, device="npu:0")))
        thread.start()
        thread.join()
    assert onesided.npu.pool_of(box[0]) is None
    box.append(x)
    del x
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert pool_stats(pool)["allocation.current"] == 0


def test_two_threads_in_one_pool_leave_it_one_by_one():
    pool = MemPool(sub_block_alignment=A)
    inside, leave = threading.Event(), threading.Event()
    owners = []

    def work():
        with use_mem_pool(pool):
            inside.set()
            leave.wait()
            owners.append(onesided.npu.pool_of(torch.ones(3, device="npu:0")))

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    with use_mem_pool(pool):
        pass
    leave.set()
    thread.join()
    assert owners == [pool.id], "the other thread's end was mistaken for ours"


def test_gradients_need_all_threads():
    pool = MemPool(sub_block_alignment=A)
    weight = torch.ones(64, 64, device="npu:0", requires_grad=True)
    with use_mem_pool(pool, all_threads=True):
        (weight * 2).sum().backward()
    assert weight.grad.data_ptr() % A == 0
    assert onesided.npu.pool_of(weight.grad) == pool.id
    assert weight.grad.eq(2).all().item()
    assert pool.use_count() == 1


def test_raw_allocation_goes_to_the_pool_too():
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        address = torch_npu.npu.caching_allocator_alloc(100)
    assert address % A == 0
    assert onesided.npu.pool_of(address) == pool.id
    torch_npu.npu.caching_allocator_delete(address)
    assert pool_stats(pool)["allocation.current"] == 0


def test_storages_resize_copy_and_save(tmp_path):
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool):
        x = torch.arange(1000, device="npu:0")
        x.resize_(500_000)
        y = x.clone()
    assert x.data_ptr() % A == 0 and y.data_ptr() % A == 0
    assert x[:1000].cpu().equal(torch.arange(1000))
    torch.save(x[:10].clone(), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt").tolist() == list(range(10))
    module = torch.nn.Linear(4, 4)
    with use_mem_pool(pool):
        module.to("npu:0")
    assert all(p.data_ptr() % A == 0 for p in module.parameters())


def test_training_in_a_pool_equals_the_cpu():
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    inputs = torch.randn(32, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    model.load_state_dict(reference.state_dict())
    pool = MemPool(sub_block_alignment=A)
    with use_mem_pool(pool, all_threads=True):
        model.to("npu:0")
        for network, data in ((reference, inputs), (model, inputs.to("npu:0"))):
            optimizer = torch.optim.SGD(network.parameters(), lr=0.1, foreach=False)
            for _ in range(3):
                optimizer.zero_grad()
                network(data).pow(2).mean().backward()
                optimizer.step()
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)
    del optimizer, network, data, ours
    torch.npu.synchronize()


def test_peers_and_capture_state_questions_are_answered():
    pool = MemPool(sub_block_alignment=A)
    x = one(pool)
    assert torch_npu._C._npu_npuCachingAllocator_raw_alloc is not None
    assert torch.npu.memory_stats()["allocated_bytes.all.current"] >= A
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] >= 0
    del x


def test_pools_are_released_while_other_threads_choose_them():
    # T0..T2: allocate, wherever they are sent | main: opens pools for all threads and drops them at once.
    stop = threading.Event()
    wrong: list[BaseException] = []

    def work():
        try:
            while not stop.is_set():
                torch.empty(1000, dtype=torch.uint8, device="npu:0")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        pool = MemPool(sub_block_alignment=A)
        with use_mem_pool(pool, all_threads=True):
            pass
        del pool
    stop.set()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    assert wrong == []


def test_first_allocations_of_a_default_pool_race_for_a_device(upstream):
    # T0..T7: the first allocation on npu:1 under form B -> one pool, and each tensor goes back to it.
    for _ in range(5):
        torch_npu.npu.change_current_allocator(upstream.allocator(sub_block_alignment=A))
        together = threading.Barrier(8)
        tensors = []

        def work(together=together, tensors=tensors):
            torch.npu.set_device(1)
            together.wait()
            tensors.append(torch.empty(1000, dtype=torch.uint8, device="npu:1"))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert len({onesided.npu.pool_of(tensor) for tensor in tensors}) == 1
        tensors.clear()
        onesided.npu.uninstall()
        onesided.npu.install()
    assert upstream.allocs == upstream.frees and upstream.wrong == 0
