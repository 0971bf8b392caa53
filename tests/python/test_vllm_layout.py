"""The layouts of two KV caches against each other: what fits is read in the right place, what does not is refused by name.

Needs no vLLM: a reader is checked against plain indexing of the same tensors.
"""

from __future__ import annotations

import itertools

import pytest

# Imported here, once, so that the setting it needs does not stay for other tests.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    torch = pytest.importorskip("torch", reason="weights are torch tensors: pip install onesided[ray]")

from onesided.vllm.layout import (
    CacheLayout,
    Layer,
    Shard,
    check_comparable,
    layer_of,
    pieces_of,
    readers_of,
    sources_of,
)
from onesided.vllm.options import ConnectorOptions, UnsupportedError

BLOCKS, TOKENS, SIZE = 6, 4, 8


def cache(heads: int, form: str) -> torch.Tensor:
    """A cache of one layer, with another number in every element, as vLLM's back ends lay it out."""
    if form == "halves":
        return torch.zeros(2, BLOCKS, TOKENS, heads, SIZE)
    if form == "halves HND":
        return torch.zeros(2, BLOCKS, heads, TOKENS, SIZE).transpose(2, 3)
    if form == "blocks":
        return torch.zeros(BLOCKS, 2, TOKENS, heads, SIZE)
    return torch.zeros(BLOCKS, 2, heads, TOKENS, SIZE).transpose(2, 3)


def layout(tensor: torch.Tensor, rank: int, size: int, total: int, **changed: int) -> CacheLayout:
    layer = layer_of("layer", tensor, BLOCKS)
    shard = Shard(rank, size, total, len(layer.shape) - 2)
    return CacheLayout((layer,), BLOCKS, changed.get("block_size", TOKENS), shard)


def filled(rank: int, size: int, total: int, form: str) -> torch.Tensor:
    """What a rank's cache holds of one model: element (kind, block, token, head, place) names itself."""
    heads = list(Shard(rank, size, total, 0).heads())
    tensor = cache(len(heads), form)
    whole = torch.arange(2 * BLOCKS * TOKENS * total * SIZE).float().view(2, BLOCKS, TOKENS, total, SIZE)
    view = tensor if tensor.shape[0] == 2 else tensor.transpose(0, 1)
    view.copy_(whole[:, :, :, heads])
    return tensor


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes below a tensor, which may be a permuted view."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def read_block(
    own: torch.Tensor, own_layout: CacheLayout, other: torch.Tensor, other_layout: CacheLayout, block: int
) -> None:
    """What the connector's READs do, with slices of bytes."""
    mine, theirs = own_layout.layers[0], other_layout.layers[0]
    for own_row, other_row in zip(mine.rows, theirs.rows, strict=True):
        for piece in pieces_of(own_layout, other_layout, 0):
            to = own_row.address - own.data_ptr() + block * own_row.stride + piece.local
            at = other_row.address - other.data_ptr() + block * other_row.stride + piece.remote
            assert piece.local + piece.nbytes <= own_row.nbytes
            assert piece.remote + piece.nbytes <= other_row.nbytes
            memory_of(own)[to : to + piece.nbytes] = memory_of(other)[at : at + piece.nbytes]


@pytest.mark.parametrize("form", ["halves", "halves HND", "blocks", "blocks HND"])
@pytest.mark.parametrize(("decode", "prefill"), list(itertools.product((1, 2, 4, 8), repeat=2)))
def test_every_head_lands_in_its_place(form: str, decode: int, prefill: int) -> None:
    total = 4
    if decode != prefill and "HND" not in form:
        pytest.skip("refused, see test_other_head_splits_need_heads_in_one_range")
    for rank in range(decode):
        want = filled(rank, decode, total, form)
        own = torch.zeros_like(want)
        own_layout = layout(own, rank, decode, total)
        for source in sources_of(rank, decode, total, prefill, replicated=False):
            other = filled(source, prefill, total, form)
            other_layout = layout(other, source, prefill, total)
            check_comparable(own_layout, other_layout)
            read_block(own, own_layout, other, other_layout, 3)
        blocks = (own, want) if own.shape[0] == 2 else (own.transpose(0, 1), want.transpose(0, 1))
        assert torch.equal(blocks[0][:, 3], blocks[1][:, 3])
        assert not blocks[0][:, [0, 1, 2, 4, 5]].any()


@pytest.mark.parametrize(("decode", "prefill", "heads"), list(itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (4, 8))))
@pytest.mark.parametrize("replicated", [False, True])
def test_every_prefill_rank_hears_from_its_readers(decode: int, prefill: int, heads: int, replicated: bool) -> None:
    reading = {rank: sources_of(rank, decode, heads, prefill, replicated) for rank in range(decode)}
    assert all(reading.values())
    for source in range(prefill):
        readers = readers_of(source, decode, heads, prefill, replicated)
        assert readers and set(readers) <= set(range(decode))
        assert {rank for rank, sources in reading.items() if source in sources} <= set(readers)


def test_other_head_splits_need_heads_in_one_range() -> None:
    own, other = layout(cache(4, "halves"), 0, 1, 4), layout(cache(2, "halves"), 0, 2, 4)
    with pytest.raises(UnsupportedError, match="VLLM_KV_CACHE_LAYOUT=HND"):
        pieces_of(own, other, 0)


def test_k6_other_block_sizes_are_refused_with_both_numbers() -> None:
    own = layout(cache(4, "blocks"), 0, 1, 4)
    with pytest.raises(UnsupportedError, match=r"block size .* 4 .* 16 "):
        check_comparable(own, layout(cache(4, "blocks"), 0, 1, 4, block_size=16))
    with pytest.raises(UnsupportedError, match="KV heads"):
        check_comparable(own, layout(cache(4, "blocks"), 0, 2, 8))
    with pytest.raises(UnsupportedError, match="data type"):
        check_comparable(own, layout(cache(4, "blocks").bfloat16(), 0, 1, 4))
    with pytest.raises(UnsupportedError, match="form"):
        check_comparable(own, layout(cache(4, "halves"), 0, 1, 4))
    with pytest.raises(UnsupportedError, match="strides"):
        pieces_of(own, layout(cache(4, "blocks HND"), 0, 1, 4), 0)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(5, 7, 3), "no dimension"),
        (torch.zeros(2, BLOCKS, 4, 4, 16)[..., ::2], "not dense"),
        ([torch.zeros(BLOCKS, 3)], "Mamba"),
    ],
)
def test_other_caches_are_refused_by_name(tensor: object, words: str) -> None:
    with pytest.raises(UnsupportedError, match=f"layer x.*{words}"):
        layer_of("x", tensor, BLOCKS)


def test_a_layout_survives_its_dict_and_another_format_does_not() -> None:
    own = layout(cache(4, "blocks"), 0, 1, 4)
    assert CacheLayout.from_dict(own.to_dict()) == own
    with pytest.raises(UnsupportedError, match="format 7"):
        CacheLayout.from_dict({**own.to_dict(), "format": 7})


def test_kernel_blocks_smaller_than_vllms() -> None:
    layer: Layer = layer_of("x", torch.zeros(BLOCKS * 4, TOKENS, 2, SIZE), BLOCKS)
    assert layer.rows[0].nbytes == layer.rows[0].stride == 4 * TOKENS * 2 * SIZE * 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lease": 3}, "'lease'"),
        ({"load": "fast"}, "async or layerwise"),
        ({"slots": 0}, "> 0"),
        ({"lease_s": "3"}, "float"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        ConnectorOptions.parse(given)
