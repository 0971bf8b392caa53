"""Prepared lists from Python: what an index may be, and what a list is after its release or its memory's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import onesided
from onesided.engine import Engine, EngineError, PreparedList, Status, TransferStatus

BLOCK, BLOCKS = 64, 32


class Pair:
    """A reader and an owner with a list of each side."""

    def __init__(self) -> None:
        self.owner = Engine("127.0.0.1:0")
        self.reader = Engine("127.0.0.1:0", {"auto_connect": "1"})
        self.source = onesided.host_pool(BLOCK * BLOCKS)
        self.target = onesided.host_pool(BLOCK * BLOCKS)
        self.source.numpy()[:] = np.arange(BLOCK * BLOCKS) // BLOCK + 1
        self.handle = self.owner.register_mem(self.source)
        self.reader.register_mem(self.target)
        self.local = self.reader.prepare_local(self.ranges(self.target))
        self.remote = self.reader.prepare_remote(self.owner.id, self.ranges(self.source))

    @staticmethod
    def ranges(memory: Any) -> np.ndarray:
        starts = memory.addr + np.arange(BLOCKS, dtype=np.uint64) * BLOCK
        return np.stack([starts, np.full(BLOCKS, BLOCK, dtype=np.uint64)], axis=1)

    def read(self, local: Any, remote: Any) -> TransferStatus:
        return self.reader.transfer("READ", self.local, local, self.remote, remote).wait(20_000)

    def target_blocks(self) -> list[int]:
        return self.target.numpy()[::BLOCK].tolist()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.reader.close()
    made.owner.close()


@pytest.mark.parametrize("kind", [list, tuple, np.int32, np.uint32, np.int64, np.uint64])
def test_indices_of_every_kind(pair: Pair, kind: Any) -> None:
    def of(numbers: list[int]) -> Any:
        return kind(numbers) if kind in (list, tuple) else np.array(numbers, dtype=kind)

    assert pair.read(of([0, 1, 5]), of([31, 2, 3])) == TransferStatus.COMPLETED
    assert pair.target_blocks()[:6] == [32, 3, 0, 0, 0, 4]


def test_numbers_of_numpy_in_a_list(pair: Pair) -> None:
    assert pair.read([np.int64(1)], [np.uint8(4)]) == TransferStatus.COMPLETED
    assert pair.target_blocks()[1] == 5


@pytest.mark.parametrize(
    "wrong",
    [[BLOCKS], [-1], [], [0, 1], [0.5], ["0"], [None], [1 << 64], 7, b"\0", np.zeros(1), np.zeros(1, dtype=bool),
     np.zeros(1, dtype=np.int16), np.zeros((1, 1), dtype=np.int64), np.zeros(4, dtype=np.int64)[::2]],
    ids=repr,
)  # fmt: skip
def test_wrong_indices_are_invalid(pair: Pair, wrong: Any) -> None:
    for local, remote in ((wrong, [0]), ([0], wrong)):
        with pytest.raises(EngineError) as refused:
            pair.reader.transfer("READ", pair.local, local, pair.remote, remote)
        assert refused.value.status == Status.PARAM_INVALID
    assert not pair.target.numpy().any()


def test_a_released_list_is_invalid(pair: Pair) -> None:
    pair.remote.release()
    pair.remote.release()
    with pytest.raises(EngineError, match="was released"):
        pair.read([0], [0])
    with pytest.raises(EngineError, match="was released"):
        len(pair.remote)


def test_lists_of_the_wrong_side_or_engine(pair: Pair) -> None:
    other = Pair()
    for local, remote in ((pair.remote, pair.local), (other.local, pair.remote)):
        with pytest.raises(EngineError) as refused:
            pair.reader.transfer("READ", local, [0], remote, [0])
        assert refused.value.status == Status.PARAM_INVALID
    other.reader.close()
    other.owner.close()


def test_a_list_of_deregistered_memory_is_stale(pair: Pair) -> None:
    described = pair.reader.import_desc(pair.owner.describe([(pair.source.addr, BLOCK * BLOCKS)]))
    by_description = pair.reader.prepare_remote(described, pair.ranges(pair.source))
    assert isinstance(by_description, PreparedList) and len(by_description) == BLOCKS
    pair.owner.deregister_mem(pair.handle)
    pair.owner.register_mem(pair.source)
    for remote in (pair.remote, by_description):
        request = pair.reader.transfer("READ", pair.local, [0], remote, [0])
        assert request.wait() == TransferStatus.FAILED
        assert request.error.status == Status.STALE
    assert not pair.target.numpy().any()
