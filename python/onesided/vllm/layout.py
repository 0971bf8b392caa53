"""How a worker's KV cache lies in memory, what of it a peer may be asked for, and which bytes of a block are whose heads.

Both sides write their layout down and the reader compares the two before it moves a byte: a length that is computed
from the peer's layout alone runs past the own buffer as soon as the page sizes or the head splits differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onesided.vllm.options import UnsupportedError

FORMAT = 1  # of the layout as a dict; another number is refused


@dataclass(frozen=True)
class Row:
    """One array of blocks: block i occupies [address + i * stride, + nbytes). A value."""

    address: int
    stride: int
    nbytes: int


@dataclass(frozen=True)
class Layer:
    """One layer's cache: its rows (K and V apart, or together) and the form of a block. A value."""

    name: str
    rows: tuple[Row, ...]
    dtype: str
    shape: tuple[int, ...]  # of one block in one row, as the tensor's dimensions are ordered
    strides: tuple[int, ...]  # of these dimensions, in elements: tells HND from NHD
    itemsize: int


@dataclass(frozen=True)
class Shard:
    """Which part of the model's KV heads a worker holds. A value."""

    tp_rank: int
    tp_size: int
    total_heads: int  # of the whole model, without replicas
    head_dim_index: int  # the dimension of Layer.shape that counts heads; -1: the cache has none (MLA)

    def heads(self) -> range:
        """The model's KV heads of this rank. With more ranks than heads, several ranks hold the same one."""
        if self.tp_size >= self.total_heads:
            head = self.tp_rank * self.total_heads // self.tp_size
            return range(head, head + 1)
        each = self.total_heads // self.tp_size
        return range(self.tp_rank * each, (self.tp_rank + 1) * each)


@dataclass(frozen=True)
class CacheLayout:
    """The cache of one worker. A value."""

    layers: tuple[Layer, ...]
    num_blocks: int
    block_size: int  # tokens in a block
    shard: Shard

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> CacheLayout:
        """Raises UnsupportedError for another format, KeyError or TypeError for something else entirely."""
        if given.get("format") != FORMAT:
            raise UnsupportedError(
                f"the prefill side describes its cache in format {given.get('format')!r}, this side reads {FORMAT}: "
                "run the same release of onesided on both sides."
            )
        layers = tuple(
            Layer(
                name=one["name"],
                rows=tuple(Row(**row) for row in one["rows"]),
                dtype=one["dtype"],
                shape=tuple(one["shape"]),
                strides=tuple(one["strides"]),
                itemsize=one["itemsize"],
            )
            for one in given["layers"]
        )
        return cls(layers, given["num_blocks"], given["block_size"], Shard(**given["shard"]))


def _geometry(name: str, tensor: Any, num_blocks: int) -> tuple[list[int], int, int]:
    """(offsets of the rows in elements, the blocks' dimension, physical blocks in one of vLLM's)."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())

    def holds_blocks(dimension: int) -> bool:
        return len(shape) > dimension + 1 and shape[dimension] >= num_blocks and shape[dimension] % num_blocks == 0

    halves_first = shape[0] == 2 and holds_blocks(1)
    if halves_first and holds_blocks(0):
        raise UnsupportedError(
            f"layer {name}: shape {shape} with {num_blocks} blocks can be read in two ways; use more than 2 blocks."
        )
    if halves_first:
        return [0, strides[0]], 1, shape[1] // num_blocks
    if holds_blocks(0):
        return [0], 0, shape[0] // num_blocks
    raise UnsupportedError(
        f"layer {name}: shape {shape} has no dimension for its {num_blocks} blocks; onesided.vllm reads caches of shape "
        "(2, blocks, ...) and (blocks, ...)."
    )


def layer_of(name: str, tensor: Any, num_blocks: int) -> Layer:
    """Reads one layer's tensor. UnsupportedError: blocks that are not dense in memory, or shapes of another kind."""
    if not hasattr(tensor, "data_ptr"):
        raise UnsupportedError(
            f"layer {name}: its cache is a {type(tensor).__name__}, not one tensor (a Mamba state?); only attention is served."
        )
    offsets, dimension, ratio = _geometry(name, tensor, num_blocks)
    shape, strides, itemsize = tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size()
    inner, steps = shape[dimension + 1 :], strides[dimension + 1 :]
    dense = 1
    for step, size in sorted(zip(steps, inner, strict=True)):
        if size > 1 and step != dense:
            raise UnsupportedError(f"layer {name}: the blocks of shape {inner} with strides {steps} are not dense.")
        dense *= size
    if strides[dimension] < dense or (ratio > 1 and strides[dimension] != dense):
        raise UnsupportedError(f"layer {name}: blocks of {dense} elements lie {strides[dimension]} elements apart.")
    rows = tuple(
        Row(tensor.data_ptr() + at * itemsize, strides[dimension] * ratio * itemsize, dense * ratio * itemsize)
        for at in offsets
    )
    if ratio > 1:  # several of the kernel's blocks make one of vLLM's
        inner, steps = (ratio, *inner), (strides[dimension], *steps)
    return Layer(name, rows, str(tensor.dtype), inner, steps, itemsize)


@dataclass(frozen=True)
class Piece:
    """One range of every block: [local, + nbytes) of the own block is [remote, + nbytes) of the peer's. A value."""

    local: int
    remote: int
    nbytes: int


def _differs(what: str, own: object, other: object) -> UnsupportedError:
    return UnsupportedError(
        f"the caches do not fit each other: {what} is {own} on the decode side and {other} on the prefill side; "
        "start both with the same setting."
    )


def check_comparable(own: CacheLayout, other: CacheLayout) -> None:
    """Everything but the heads must be equal. UnsupportedError names the first difference with both values."""
    if own.block_size != other.block_size:
        raise _differs("the block size (tokens)", own.block_size, other.block_size)
    if own.shard.total_heads != other.shard.total_heads:
        raise _differs("the number of KV heads of the model", own.shard.total_heads, other.shard.total_heads)
    names = [layer.name for layer in own.layers], [layer.name for layer in other.layers]
    if names[0] != names[1]:
        missing = sorted(set(names[0]) ^ set(names[1]))
        raise _differs("the list of layers", f"{len(names[0])} layers", f"{len(names[1])} layers, apart: {missing[:4]}")
    for mine, theirs in zip(own.layers, other.layers, strict=True):
        if mine.dtype != theirs.dtype:
            raise _differs(f"the data type of layer {mine.name}", mine.dtype, theirs.dtype)
        if len(mine.rows) != len(theirs.rows) or len(mine.shape) != len(theirs.shape):
            raise _differs(f"the form of layer {mine.name}", mine.shape, theirs.shape)


def pieces_of(own: CacheLayout, other: CacheLayout, layer: int) -> list[Piece]:
    """Which bytes of a peer's block of this layer belong where in the own block; none: no head in common.

    UnsupportedError: another form, or other head splits with a layout in which a head is not one range.
    """
    mine, theirs = own.layers[layer], other.layers[layer]
    head = own.shard.head_dim_index
    if own.shard.tp_size == other.shard.tp_size or head < 0:
        if (mine.shape, mine.strides) != (theirs.shape, theirs.strides):
            raise _differs(
                f"the block of layer {mine.name} (shape, strides)", (mine.shape, mine.strides),
                (theirs.shape, theirs.strides),
            )  # fmt: skip
        return [Piece(0, 0, mine.rows[0].nbytes)]
    without = [size for at, size in enumerate(mine.shape) if at != head]
    if without != [size for at, size in enumerate(theirs.shape) if at != head]:
        raise _differs(f"the block of layer {mine.name} apart from its heads", mine.shape, theirs.shape)
    common = sorted(set(own.shard.heads()) & set(other.shard.heads()))
    if not common:
        return []
    outer = 1  # how many ranges of heads a block has: the dimensions that lie outside the heads
    for at, size in enumerate(mine.shape):
        if at != head and size > 1 and mine.strides[at] >= mine.strides[head]:  # equal: there is one head
            outer *= size
    per_head = mine.strides[head] * mine.itemsize
    if theirs.strides[head] * theirs.itemsize != per_head:
        raise UnsupportedError(
            f"layer {mine.name}: the tensor-parallel sizes differ ({own.shard.tp_size} decode, {other.shard.tp_size} prefill) "
            f"and the heads are ordered differently: strides {mine.strides} and {theirs.strides}. "
            "Set VLLM_KV_CACHE_LAYOUT=HND on both sides."
        )
    if outer > 2:  # K and V of one block are 2; more means tokens lie outside the heads
        raise UnsupportedError(
            f"layer {mine.name}: the tensor-parallel sizes differ ({own.shard.tp_size} decode, {other.shard.tp_size} prefill) "
            f"and one head of a block is {outer} ranges (layout NHD). Set VLLM_KV_CACHE_LAYOUT=HND on both sides."
        )
    first = common[0]
    nbytes = len(common) * per_head
    own_step, other_step = mine.rows[0].nbytes // outer, theirs.rows[0].nbytes // outer
    return [
        Piece(
            turn * own_step + (first - own.shard.heads().start) * per_head,
            turn * other_step + (first - other.shard.heads().start) * per_head,
            nbytes,
        )
        for turn in range(outer)
    ]


def sources_of(rank: int, size: int, total_heads: int, remote_size: int, replicated: bool) -> list[int]:
    """The prefill ranks that a decode rank reads from. One for each head that it holds; replicas are spread."""
    if replicated:
        return [rank * remote_size // size] if size >= remote_size else [rank * (remote_size // size)]
    own = Shard(rank, size, total_heads, 0).heads()
    found: list[int] = []
    for head in own:
        holders = [one for one in range(remote_size) if head in Shard(one, remote_size, total_heads, 0).heads()]
        chosen = holders[rank % len(holders)]
        if chosen not in found:
            found.append(chosen)
    return found


def readers_of(remote_rank: int, size: int, total_heads: int, remote_size: int, replicated: bool) -> Sequence[int]:
    """The decode ranks that report to a prefill rank: those that read from it, or one that only releases it."""
    readers = [
        rank for rank in range(size) if remote_rank in sources_of(rank, size, total_heads, remote_size, replicated)
    ]
    return readers or [remote_rank % size]
