"""A parameter is a global shape and the boxes of it that this rank has. Boxes come from plain tensors, from DTensors of
any mesh and placements, and from slices that the caller describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from onesided.weights.errors import WeightsError

Runs = list[tuple[int, int]]
"""Half-open ranges of one dimension, ascending in the local tensor."""


@dataclass(frozen=True)
class Slice:
    """`tensor` is the box of a parameter of global `shape` that begins at `offsets`. Any strides, no overlap."""

    tensor: torch.Tensor
    shape: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """One box of a parameter and the memory of it on this rank."""

    name: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: torch.Tensor


Weights = Mapping[str, "torch.Tensor | Slice | Sequence[Slice]"]


def fused(tensor: torch.Tensor, parts: Mapping[str, int], *, dim: int = 0) -> dict[str, torch.Tensor]:
    """Views of one fused tensor (qkv, gate_up) under the names of its parts; `parts` gives elements of `dim` in order.
    ValueError: they do not add up to the tensor."""
    if sum(parts.values()) != tensor.shape[dim]:
        raise ValueError(
            f"the parts {dict(parts)} have {sum(parts.values())} elements of dimension {dim}; the tensor has "
            f"{tensor.shape[dim]}"
        )
    views = torch.split(tensor, list(parts.values()), dim)
    return dict(zip(parts, views, strict=True))


def experts(tensor: torch.Tensor, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Views of stacked experts (experts first) under one name an expert. ValueError: another number of names."""
    if len(names) != tensor.shape[0]:
        raise ValueError(f"{len(names)} names for {tensor.shape[0]} experts")
    return dict(zip(names, tensor.unbind(0), strict=True))


def state_of(weights: torch.nn.Module | Weights) -> dict[str, Any]:
    """By name: of a module its parameters and buffers, tied ones under each of their names."""
    if isinstance(weights, torch.nn.Module):
        return {name: value.detach() for name, value in weights.state_dict(keep_vars=True).items()}
    return dict(weights)


def boxes_of(weights: torch.nn.Module | Weights) -> Iterator[Box]:
    """All boxes with elements. WeightsError: a value that has no boxes, by name and why."""
    for name, value in state_of(weights).items():
        if isinstance(value, Slice):
            yield from _slice(name, value)
        elif isinstance(value, torch.Tensor):
            yield from _dtensor(name, value) if hasattr(value, "placements") else _whole(name, value)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            for part in value:
                yield from _slice(name, part)
        else:
            raise WeightsError(
                f"parameter {name!r} is a {type(value).__name__}; expected a tensor, a Slice or a list of Slices"
            )


def _whole(name: str, tensor: torch.Tensor) -> Iterator[Box]:
    yield from _checked(Box(name, tuple(tensor.shape), (0,) * tensor.dim(), tensor.detach()))


def _slice(name: str, part: Slice) -> Iterator[Box]:
    sizes = tuple(part.tensor.shape)
    if not len(sizes) == len(part.shape) == len(part.offsets):
        raise WeightsError(
            f"parameter {name!r}: a slice of {len(sizes)} dimensions, {len(part.offsets)} offsets and a shape of "
            f"{len(part.shape)}; expected the same number"
        )
    for d, (offset, size, extent) in enumerate(zip(part.offsets, sizes, part.shape, strict=True)):
        if offset < 0 or offset + size > extent:
            raise WeightsError(f"parameter {name!r}: {size} elements from {offset} on leave dimension {d} of {extent}")
    yield from _checked(Box(name, tuple(part.shape), tuple(part.offsets), part.tensor.detach()))


def _checked(box: Box) -> Iterator[Box]:
    tensor = box.tensor
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        raise WeightsError(f"parameter {box.name!r} is no dense tensor with memory ({tensor.layout}, {tensor.device})")
    if tensor.is_conj() or tensor.is_neg():
        raise WeightsError(
            f"parameter {box.name!r} is a lazy conjugate or negative; call resolve_conj() or resolve_neg()"
        )
    if tensor.numel() == 0:
        return
    # Ascending strides: an element's memory must be its own.
    end = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if stride < end:
            raise WeightsError(
                f"parameter {box.name!r}: elements share memory (strides {tensor.stride()}); give a copy"
            )
        end = stride * (size - 1) + end
    yield box


def _chunks(runs: Runs, count: int) -> list[Runs]:
    """As torch.chunk cuts, empty ones last."""
    total = sum(end - start for start, end in runs)
    step = -(-total // count)
    return [_take(runs, min(i * step, total), min((i + 1) * step, total)) for i in range(count)]


def _take(runs: Runs, start: int, end: int) -> Runs:
    """Elements [start, end) of those that the runs list."""
    taken: Runs = []
    at = 0
    for first, last in runs:
        low, high = max(start - at, 0), min(end - at, last - first)
        if low < high:
            taken.append((first + low, first + high))
        at += last - first
    return taken


def _merged(runs: Runs) -> Runs:
    merged: Runs = []
    for start, end in runs:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def shard_runs(size: int, placements: Sequence[tuple[int, int, int]]) -> Runs:
    """What a rank holds of a dimension of `size` elements. placements: of each mesh dimension that cuts this dimension,
    in the mesh's order, the ranks in it, this rank's place, and the split factor (1: Shard, more: _StridedShard)."""
    runs: Runs = [(0, size)]
    for count, place, split_factor in placements:
        pieces = [_chunks(piece, count)[place] for piece in _chunks(runs, split_factor)]
        runs = [run for piece in pieces for run in piece]
    return _merged(runs)


def _dtensor(name: str, value: Any) -> Iterator[Box]:
    mesh, coordinate = value.device_mesh, value.device_mesh.get_coordinate()
    if coordinate is None:
        return  # this rank is not in the parameter's mesh
    cuts: dict[int, list[tuple[int, int, int]]] = {}
    for mesh_dim, placement in enumerate(value.placements):
        if placement.is_partial():
            raise WeightsError(
                f"parameter {name!r} is {placement} over mesh dimension {mesh_dim}: its values are sums still to be made; "
                "redistribute it to Replicate() or Shard() first"
            )
        if placement.is_replicate():
            continue
        factor = getattr(placement, "split_factor", 1)
        if not hasattr(placement, "dim") or not isinstance(factor, int):
            raise WeightsError(f"parameter {name!r} has the placement {placement}, of which no box is known")
        dim = placement.dim % max(value.dim(), 1)
        cuts.setdefault(dim, []).append((mesh.size(mesh_dim), coordinate[mesh_dim], factor))
    local = value.to_local().detach()
    runs = [shard_runs(size, cuts.get(d, [])) for d, size in enumerate(value.shape)]
    expected = [sum(end - start for start, end in of_dim) for of_dim in runs]
    if list(local.shape) != expected and local.numel() + torch.Size(expected).numel() > 0:
        raise WeightsError(
            f"parameter {name!r} of shape {tuple(value.shape)} with {value.placements}: this rank has a shard of "
            f"{tuple(local.shape)}, but the placements give {tuple(expected)}; give its place with Slice(to_local(), shape, "
            "offsets)"
        )
    for combination in product(*runs):
        tensor = local
        for d, (start, end) in enumerate(combination):
            tensor = tensor.narrow(d, _place_of(runs[d], start), end - start)
        yield from _checked(Box(name, tuple(value.shape), tuple(start for start, _ in combination), tensor))


def _place_of(runs: Runs, start: int) -> int:
    """Where in the local tensor the run that begins at `start` lies."""
    at = 0
    for first, last in runs:
        if first == start:
            return at
        at += last - first
    raise AssertionError("a run of another dimension")
