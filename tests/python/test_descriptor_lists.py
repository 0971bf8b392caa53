"""Lists and arrays of descriptors that are wrong, or that change while they are read."""

from __future__ import annotations

import pytest

import onesided
from onesided.engine import Status


@pytest.fixture
def engine():
    with onesided.Engine("127.0.0.1:0") as engine:
        yield engine


def refusal(engine: onesided.Engine, descs: object) -> onesided.EngineError:
    with pytest.raises(onesided.EngineError) as caught:
        engine.transfer_sync(engine.id, "READ", descs)
    assert caught.value.status == Status.PARAM_INVALID
    return caught.value


@pytest.mark.parametrize("form", [("d", [4, 3]), ("Q", [6, 2]), ("Q", [12]), ("Q", [2, 2, 3]), ("B", [96])])
def test_a_refused_array_is_let_go(engine, form):
    array = memoryview(bytearray(96)).cast(*form)
    assert "N x 3 (local_addr, remote_addr, nbytes) of dtype uint64" in str(refusal(engine, array))
    array.release()  # BufferError while its memory is in use


class Emptying:
    """An integer that empties a list when it is read."""

    def __init__(self, victim: list) -> None:
        self.victim = victim

    def __index__(self) -> int:
        self.victim.clear()
        return 4096


def test_a_list_that_changes_while_it_is_read(engine):
    outer: list = []
    outer.extend([Emptying(outer), 4096, 10] for _ in range(1000))
    assert "item 0 of 1000" in str(refusal(engine, outer))
    inner: list = []
    inner.extend([Emptying(inner), 4096, 10])
    assert refusal(engine, [inner])


def test_what_the_callers_own_code_raises_is_not_hidden(engine):
    class Broken:
        def __index__(self) -> int:
            raise ZeroDivisionError

    def rows():
        yield (4096, 4096, 1)
        raise LookupError

    with pytest.raises(ZeroDivisionError):
        engine.transfer_sync(engine.id, "READ", [(Broken(), 4096, 1)])
    with pytest.raises(LookupError):
        engine.transfer_sync(engine.id, "READ", rows())


def test_handles_compare_with_anything(engine):
    pool = onesided.host_pool(4096)
    handle = engine.register_mem(pool.addr, 4096)
    assert handle == engine.register_mem(pool.addr, 4096)
    assert handle != None and handle != 5 and handle not in [None, "x"]  # noqa: E711
