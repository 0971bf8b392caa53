"""The Python operations of the engine, with one or two engines in one process."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import onesided
from onesided.engine import Status, TransferStatus


def buffer(nbytes: int, seed: int | None = None) -> np.ndarray:
    if seed is None:
        return np.zeros(nbytes, np.uint8)
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def addr(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.fixture
def pair():
    with onesided.Engine("127.0.0.1:0") as reader, onesided.Engine("127.0.0.1:0") as owner:
        reader.connect(owner.id)
        yield reader, owner


def status_of(call, *args, **kwargs) -> Status:
    with pytest.raises(onesided.EngineError) as caught:
        call(*args, **kwargs)
    assert caught.value.status.name in str(caught.value)
    return caught.value.status


def test_read_and_write(pair):
    reader, owner = pair
    theirs, mine = buffer(1 << 20, 1), buffer(1 << 20)
    owner.register_mem(addr(theirs), theirs.nbytes, "host")
    reader.register_mem(addr(mine), mine.nbytes, onesided.MemType.HOST)
    reader.transfer_sync(owner.id, "READ", [(addr(mine), addr(theirs), theirs.nbytes)])
    assert (mine == theirs).all()
    mine[:] = 7
    req = reader.transfer_async(owner.id, "WRITE", [(addr(mine) + 5, addr(theirs) + 3, 1000)])
    assert req.wait(1000) == TransferStatus.COMPLETED == req.status() == reader.get_transfer_status(req)
    assert reader.get_transfer_status([req, req]) == [TransferStatus.COMPLETED] * 2
    assert req.error is None and req.bytes_done == 1000
    assert [(i.status, i.bytes_done) for i in req.items] == [(Status.SUCCESS, 1000)]
    assert (theirs[3:1003] == 7).all() and theirs[2] != 7


def test_array_of_descriptors_and_100k_items(pair):
    reader, owner = pair
    count, size = 100_000, 4096
    theirs, mine = buffer(count * 64, 2), buffer(count * 64)
    owner.register_mem(addr(theirs), theirs.nbytes)
    reader.register_mem(addr(mine), mine.nbytes)
    order = np.random.default_rng(3).permutation(count).astype(np.uint64) * np.uint64(64)
    descs = np.stack(
        [order + np.uint64(addr(mine)), order + np.uint64(addr(theirs)), np.full(count, 64, np.uint64)], axis=1
    )
    reader.transfer_sync(owner.id, "READ", descs, timeout_ms=20_000)
    assert (mine == theirs).all()
    mine[:] = 0
    reader.transfer_sync(owner.id, "READ", np.asfortranarray(descs), timeout_ms=20_000)
    assert (mine == theirs).all()
    assert status_of(reader.transfer_sync, owner.id, "READ", descs.astype(np.float64)) == Status.PARAM_INVALID
    assert status_of(reader.transfer_sync, owner.id, "READ", descs[:, :2]) == Status.PARAM_INVALID
    blob = owner.describe([(addr(theirs) + i * 64, 64) for i in range(15_000)])
    assert len(blob) <= 40 * 15_000 + size


@pytest.mark.parametrize(
    "descs",
    [
        [],
        [(0, 1, 1)],
        [(1, 0, 1)],
        [(1, 1, 0)],
        [(1, 1)],
        [1],
        5,
        [("a", 1, 1)],
        [(-1, 1, 1)],
        [(1 << 64, 1, 1)],
        [((1 << 64) - 1, 1, 2)],
    ],
)
def test_bad_descriptors(pair, descs):
    reader, owner = pair
    assert status_of(reader.transfer_sync, owner.id, "READ", descs) == Status.PARAM_INVALID
    assert status_of(reader.transfer_async, owner.id, "READ", descs) == Status.PARAM_INVALID


def test_one_byte_out_of_range(pair):
    reader, owner = pair
    theirs, mine = buffer(3 << 12, 4), buffer(3 << 12)
    middle = 1 << 12
    owner.register_mem(addr(theirs) + middle, middle)
    reader.register_mem(addr(mine), mine.nbytes)
    for offset, nbytes in [(middle - 1, 10), (middle, middle + 1), (2 * middle, 1), (0, 1)]:
        assert (
            status_of(reader.transfer_sync, owner.id, "READ", [(addr(mine), addr(theirs) + offset, nbytes)])
            == Status.PARAM_INVALID
        )
        assert (
            status_of(reader.transfer_sync, owner.id, "WRITE", [(addr(mine), addr(theirs) + offset, nbytes)])
            == Status.PARAM_INVALID
        )
    assert (
        status_of(reader.transfer_sync, owner.id, "READ", [(addr(mine) + 1, addr(theirs) + middle, mine.nbytes)])
        == Status.PARAM_INVALID
    )
    assert not mine.any()


def test_registration_rules(pair):
    reader, owner = pair
    theirs = buffer(1 << 16)
    first = owner.register_mem(addr(theirs), 4096)
    assert owner.register_mem(addr(theirs), 4096) == first
    assert status_of(owner.register_mem, addr(theirs) + 1, 4096) == Status.PARAM_INVALID
    assert status_of(owner.register_mem, 0, 4096) == Status.PARAM_INVALID
    assert status_of(owner.register_mem, addr(theirs), 0) == Status.PARAM_INVALID
    assert status_of(owner.register_mem, (1 << 64) - 1, 2) == Status.PARAM_INVALID
    assert status_of(owner.register_mem, 4096, 4096) == Status.PARAM_INVALID  # not mapped
    assert status_of(owner.register_mem, addr(theirs), 4096, "gpu") == Status.PARAM_INVALID
    assert status_of(owner.register_mem, addr(theirs), 4096, "device") == Status.PARAM_INVALID  # no runtime
    adjacent = owner.register_mem(addr(theirs) + 4096, 4096)
    mine = buffer(8192)
    reader.register_mem(addr(mine), mine.nbytes)
    # An item lies in one region.
    assert status_of(reader.transfer_sync, owner.id, "READ", [(addr(mine), addr(theirs), 8192)]) == Status.PARAM_INVALID
    owner.deregister_mem(first)
    reader.transfer_sync(owner.id, "READ", [(addr(mine), addr(theirs), 4096)])
    owner.deregister_mem(first)
    assert status_of(reader.transfer_sync, owner.id, "READ", [(addr(mine), addr(theirs), 4096)]) == Status.PARAM_INVALID
    assert status_of(owner.deregister_mem, first) == Status.NOT_FOUND
    assert status_of(reader.deregister_mem, adjacent) == Status.NOT_FOUND
    owner.deregister_mem(adjacent)


def test_descriptors_are_bound_to_a_registration(pair):
    reader, owner = pair
    theirs, mine = buffer(8192, 5), buffer(8192)
    reader.register_mem(addr(mine), mine.nbytes)
    handle = owner.register_mem(addr(theirs), theirs.nbytes)
    regs = reader.import_desc(owner.describe([(addr(theirs) + 16, 4096)]))
    assert regs.engine_id == owner.id and len(regs) == 1 and regs[0] == (addr(theirs) + 16, 4096)
    bound = regs.pairs([(addr(mine), 0, 8, 100), (addr(mine) + 100, 0, 108, 100)])
    reader.transfer_sync(owner.id, "READ", bound)
    assert (mine[:200] == theirs[24:224]).all()
    assert status_of(regs.pairs, [(addr(mine), 1, 0, 1)]) == Status.PARAM_INVALID
    assert status_of(regs.pairs, [(addr(mine), 0, 4096, 1)]) == Status.PARAM_INVALID
    owner.deregister_mem(handle)
    assert status_of(reader.transfer_sync, owner.id, "READ", bound) == Status.STALE
    owner.register_mem(addr(theirs), theirs.nbytes)
    request = reader.transfer_async(owner.id, "READ", bound)
    assert request.wait() == TransferStatus.FAILED and request.error.status == Status.STALE
    assert {item.status for item in request.items} == {Status.STALE}
    for cut in range(0, 60):
        assert status_of(reader.import_desc, owner.describe([(addr(theirs), 1)])[:cut]) in (
            Status.PARAM_INVALID,
            Status.UNSUPPORTED,
        )


def test_itself():
    with onesided.Engine() as engine:
        data = buffer(3 << 20, 6)
        engine.register_mem(addr(data), data.nbytes)
        want = data.copy()
        want[1000 : 1000 + (2 << 20)] = data[: 2 << 20]
        engine.transfer_sync(engine.id, "WRITE", [(addr(data), addr(data) + 1000, 2 << 20)])  # overlaps: as memmove
        assert (data == want).all()
        engine.connect(engine.id)
        assert engine.stats()["peers"][engine.id]["bytes"]["self"] == 2 << 20


def test_connections():
    with onesided.Engine() as a, onesided.Engine() as b:
        assert status_of(a.transfer_sync, b.id, "READ", [(1, 1, 1)]) == Status.NOT_CONNECTED
        assert status_of(a.disconnect, b.id) == Status.NOT_CONNECTED
        a.connect(b.id)
        assert status_of(a.connect, b.id) == Status.ALREADY_CONNECTED
        a.disconnect(b.id)
        a.connect(b.id)
        assert status_of(a.connect, b.id, timeout_ms=0) == Status.PARAM_INVALID
        a.connect_async(a.id)
        a.disconnect_async(b.id)
        a.connect_async(b.id)
        while a.get_async_connect_status(b.id) == TransferStatus.WAITING:
            threading.Event().wait(0.001)
        assert a.get_async_connect_status(b.id) == TransferStatus.COMPLETED
        assert status_of(a.get_async_connect_status, "127.0.0.1:1") == Status.NOT_FOUND
        b.close()
        with onesided.Engine() as c:
            assert status_of(a.connect, "127.0.0.1:1") in (Status.NOT_CONNECTED, Status.FAILED)
            a.connect(c.id)


def test_options():
    assert status_of(onesided.Engine, "127.0.0.1:0", {"transport": "shm"}) == Status.PARAM_INVALID
    assert status_of(onesided.Engine, "127.0.0.1:0", {"transports": "shm,rdma"}) == Status.PARAM_INVALID
    assert status_of(onesided.Engine, "127.0.0.1:0", {"worker_threads": "0"}) == Status.PARAM_INVALID
    assert status_of(onesided.Engine, "nonsense:port") == Status.PARAM_INVALID
    with (
        onesided.Engine("127.0.0.1:0", {"auto_connect": "1", "worker_threads": "2", "transports": "cma"}) as a,
        onesided.Engine() as b,
    ):
        theirs, mine = buffer(100, 7), buffer(100)
        b.register_mem(addr(theirs), 100)
        a.register_mem(addr(mine), 100)
        a.transfer_sync(b.id, "READ", [(addr(mine), addr(theirs), 100)])
        assert (mine == theirs).all()
        assert a.get_capability("AUTO_CONNECT") == 1 and a.get_capability("DYNAMIC_REGISTRATION") == 1
        assert status_of(a.get_capability, "FLYING") == Status.PARAM_INVALID
        assert a.stats()["peers"][b.id]["transports"] == ["cma"]
        assert status_of(onesided.Engine, a.id) == Status.ADDR_IN_USE


def test_notifications(pair):
    a, b = pair
    sent = [("", b""), ("name", b"\x00\xff" * 10), ("gr\u00fc\u00dfe", bytes(65_536)), ("big", bytes(1 << 20))]
    for name, message in sent:
        a.send_notify(b.id, name, message)
    assert b.get_notifies() == sent and b.get_notifies() == []
    assert status_of(a.send_notify, b.id, "n", bytes(a.get_capability("MAX_NOTIFY_BYTES"))) == Status.PARAM_INVALID
    assert status_of(b.send_notify, a.id, "n", b"") == Status.NOT_CONNECTED


def test_a_request_stays_what_it_became(pair):
    a, b = pair
    theirs, mine = buffer(1 << 20, 8), buffer(1 << 20)
    b.register_mem(addr(theirs), theirs.nbytes)
    handle = a.register_mem(addr(mine), mine.nbytes)
    request = a.transfer_async(b.id, "READ", [(addr(mine), addr(theirs), theirs.nbytes)])
    assert request.wait() == TransferStatus.COMPLETED
    request.cancel()
    assert request.status() == request.wait() == TransferStatus.COMPLETED
    assert status_of(b.get_transfer_status, request) == Status.NOT_FOUND
    assert status_of(a.get_transfer_status, 0) == Status.NOT_FOUND
    a.deregister_mem(handle)
    a.close()
    assert request.status() == TransferStatus.COMPLETED
    assert status_of(a.transfer_sync, b.id, "READ", [(1, 1, 1)]) == Status.CLOSED
    a.close()


def test_memory_outside_numpy(pair):
    a, b = pair
    source = ctypes.create_string_buffer(b"hello", 4096)
    target = ctypes.create_string_buffer(4096)
    b.register_mem(ctypes.addressof(source), 4096)
    a.register_mem(ctypes.addressof(target), 4096)
    a.transfer_sync(b.id, "READ", [(ctypes.addressof(target), ctypes.addressof(source), 4096)])
    assert target.value == b"hello"
