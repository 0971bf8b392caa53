"""Items of rows from Python: tuples, arrays, lists with both kinds, and items bound to descriptions."""

import numpy as np
import pytest

import onesided
from onesided.engine import Status

KINDS = "cma", "tcp"


@pytest.fixture(params=KINDS)
def pair(request):
    options = {"transports": request.param}
    with onesided.Engine(options=options) as owner, onesided.Engine(options=options) as reader:
        reader.connect(owner.id)
        yield owner, reader


@pytest.fixture
def matrices(pair):
    owner, reader = pair
    theirs = np.arange(64 * 32, dtype=np.uint64).reshape(64, 32)
    mine = np.zeros((64, 8), dtype=np.uint64)
    owner.register_mem(theirs)
    reader.register_mem(mine)
    return theirs, mine


def row_item(theirs, mine, column):
    """Eight columns of theirs from `column` on, as one item."""
    return (mine.ctypes.data, theirs[:, column:].ctypes.data, mine.nbytes, 64, 64, 256)


@pytest.mark.parametrize("form", ["tuples", "array", "lists"])
def test_columns_of_a_matrix_are_one_item(pair, matrices, form):
    owner, reader = pair
    theirs, mine = matrices
    item = row_item(theirs, mine, 8)
    descs = {"tuples": [item], "array": np.array([item], dtype=np.uint64), "lists": [list(item)]}[form]
    request = reader.transfer_async(owner.id, "READ", descs)
    request.wait()
    assert [entry.bytes_done for entry in request.items] == [mine.nbytes]
    np.testing.assert_array_equal(mine, theirs[:, 8:16])
    mine += 1
    reader.transfer_sync(owner.id, "WRITE", descs)
    np.testing.assert_array_equal(theirs[:, 8:16], mine)


def test_a_list_of_both_kinds(pair, matrices):
    owner, reader = pair
    theirs, mine = matrices
    wide = (mine.ctypes.data, theirs.ctypes.data, 32 * 64, 64, 64, 256)
    narrow = (mine.ctypes.data + 32 * 64, theirs.ctypes.data + 32 * 256, 64)
    reader.transfer_sync(owner.id, "READ", [wide, narrow])
    np.testing.assert_array_equal(mine[:32], theirs[:32, :8])
    np.testing.assert_array_equal(mine[32], theirs[32, :8])
    assert mine[33:].sum() == 0


def test_bound_items_with_rows_stay_in_their_range(pair, matrices):
    owner, reader = pair
    theirs, mine = matrices
    regions = reader.import_desc(owner.describe([(theirs.ctypes.data, theirs.nbytes)]))
    bound = regions.pairs([(mine.ctypes.data, 0, 192, mine.nbytes, 64, 64, 256)])
    reader.transfer_sync(owner.id, "READ", bound)
    np.testing.assert_array_equal(mine, theirs[:, 24:])
    with pytest.raises(onesided.EngineError, match=r"offset 193 .* does not lie in described range 0"):
        regions.pairs([(mine.ctypes.data, 0, 193, mine.nbytes, 64, 64, 256)])
    with pytest.raises(onesided.EngineError, match="whole rows"):
        regions.pairs([(mine.ctypes.data, 0, 0, 100, 64, 64, 256)])


@pytest.mark.parametrize("change", [(3, 0), (3, 2**64 - 1), (4, 63), (5, 63), (5, 2**63), (2, 65), (2, 2**64 - 64)])
def test_what_cannot_be_rows_is_refused_and_nothing_moves(pair, matrices, change):
    owner, reader = pair
    theirs, mine = matrices
    item = list(row_item(theirs, mine, 0))
    item[change[0]] = change[1]
    with pytest.raises(onesided.EngineError) as refused:
        reader.transfer_sync(owner.id, "READ", [tuple(item)])
    assert refused.value.status == Status.PARAM_INVALID
    assert mine.sum() == 0
