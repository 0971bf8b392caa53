"""Host buffers and host pools from Python: addresses, lifetimes, announcements."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import pytest

import onesided


@pytest.fixture
def torch():
    """PyTorch as such: CPU tensors need no accelerator."""
    return pytest.importorskip("torch")


def test_buffer_is_aligned_zeroed_and_shared_between_its_views():
    with onesided.host_pool(3 << 20) as buffer:
        assert buffer.addr % (2 << 20) == 0
        assert buffer.nbytes == len(buffer) == 3 << 20
        array = buffer.numpy()
        assert not array.any()
        array[5] = 7
        assert buffer.memoryview()[5] == 7
        assert array.__array_interface__["data"][0] == buffer.addr


def test_views_keep_the_memory_after_close():
    buffer = onesided.host_pool(1 << 20)
    array = buffer.numpy()
    buffer.close()
    buffer.close()
    array[:] = 9
    assert array.sum() == 9 << 20
    with pytest.raises(ValueError, match="closed"):
        _ = buffer.addr


@pytest.mark.parametrize(("nbytes", "alignment"), [(0, 4096), (4096, 3000), (1 << 62, 4096)])
def test_bad_requests_are_errors(nbytes, alignment):
    with pytest.raises(onesided.EngineError):
        onesided.host_pool(nbytes, alignment)


@pytest.mark.parametrize("options", [{"alignment": 3}, {"alignment": 512}, {"gc_threshold": 0.5}, {"segment_bytes": 0}])
def test_bad_pool_options_name_the_rule(options):
    with pytest.raises(ValueError, match=next(iter(options)) if "alignment" not in options else "sub_block_alignment"):
        onesided.HostPool(**options)


def test_blocks_are_reused_and_segments_announced():
    pool = onesided.HostPool()
    events = []
    number = pool.subscribe(
        lambda s: events.append(("added", s["address"])), lambda s: events.append(("dropped", s["address"]))
    )
    block = pool.allocate(100_000)
    assert [kind for kind, _ in events] == ["added"]
    segment = pool.segments()[0]
    assert segment["address"] <= block.addr < segment["address"] + segment["nbytes"]
    first = block.addr
    del block
    again = pool.allocate(100_000)
    assert again.addr == first
    again.close()
    assert pool.trim() == segment["raw_bytes"]
    assert events == [("added", segment["address"]), ("dropped", segment["address"])]
    pool.unsubscribe(number)
    pool.allocate(1).close()
    assert len(events) == 2


def test_a_subscriber_hears_of_what_is_there():
    pool = onesided.HostPool(preallocate_bytes=1 << 20)
    seen = []
    pool.subscribe(seen.append, None)
    assert [segment["nbytes"] for segment in seen] == [1 << 20]


def test_tensor_holds_its_block_and_the_pool(torch):
    pool = onesided.HostPool()
    weights = onesided.host_tensor(pool, (3, 5), torch.bfloat16)
    weights.fill_(1.5)
    row = weights[1]
    del weights
    gc.collect()
    assert pool.stats()["allocation.current"] == 1
    assert row.tolist() == [1.5] * 5
    del pool
    gc.collect()
    assert row.sum().item() == 7.5
    assert onesided.host_tensor(onesided.HostPool(), (0, 4), torch.float32).shape == (0, 4)


def test_cap_and_statistics():
    pool = onesided.HostPool(max_bytes=8 << 20)
    held = pool.allocate(6 << 20)
    with pytest.raises(onesided.EngineError, match="max_bytes"):
        pool.allocate(4 << 20)
    stats = pool.stats()
    assert stats["num_ooms"] == 1
    assert stats["allocated_bytes.current"] == 6 << 20
    held.close()
    pool.allocate(8 << 20).close()


def test_threads_share_a_pool():
    pool = onesided.HostPool()
    wrong = []

    def work(number: int) -> None:
        for size in range(1, 200):
            block = pool.allocate(size * 64)
            array = block.numpy()
            array[:] = number
            if not np.all(array == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.stats()["allocation.current"] == 0


def test_a_forked_child_gets_an_error_not_its_parents_memory():
    # Pages and free blocks are shared with the child: both would hand out the same block.
    pool = onesided.HostPool()
    pool.allocate(4096).close()  # one idle block
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pool.allocate(4096)
        except onesided.EngineError as error:
            os.write(write_end, str(error).encode() if error.status == onesided.Status.CLOSED else b"another status")
        fresh = onesided.HostPool().allocate(4096)
        fresh.numpy()[:] = 7
        os._exit(0 if fresh.numpy()[4095] == 7 else 1)
    os.close(write_end)
    said = os.read(read_end, 4096).decode()
    os.close(read_end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "make a pool in this process" in said
    assert pool.allocate(4096).numpy().shape == (4096,)


def test_large_alignments_cost_nothing_beside_the_charge():
    pool = onesided.HostPool(alignment=2 << 20)
    blocks = [pool.allocate(2 << 20) for _ in range(8)]
    assert all(block.addr % (2 << 20) == 0 for block in blocks)
    assert pool.stats()["reserved_bytes.current"] == pool.stats()["allocated_bytes.current"] == 16 << 20
