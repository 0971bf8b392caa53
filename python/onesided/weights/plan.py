"""A reader's plan: which bytes of which rank go where. Made once, replayed while both layouts stand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onesided import _core
from onesided.engine import Engine, EngineError
from onesided.weights.boxes import Box
from onesided.weights.errors import WeightsError
from onesided.weights.manifest import Manifest
from onesided.weights.memory import box_row, parameters_of


@dataclass(frozen=True)
class Conversion:
    """Bytes that arrive in `staged` (the publisher's dtype) and belong in `target` (another one)."""

    staged: torch.Tensor
    target: torch.Tensor


@dataclass
class Phase:
    """Transfers that run together; conversions that follow them."""

    reads: list[tuple[int, Any]] = field(default_factory=list)  # rank, BoundItems
    conversions: list[Conversion] = field(default_factory=list)


@dataclass
class Plan:
    """phases[0] goes straight into the targets; the others alternate between the two halves of the staging buffer."""

    phases: list[Phase]
    bytes_needed: int
    bytes_from: dict[int, int]  # by rank
    ranks: dict[int, tuple[Manifest, Any]]  # those that are read, with what they described


def make_plan(
    engine: Engine, boxes: Sequence[Box], manifests: Sequence[Manifest], reader: int, staging: torch.Tensor
) -> Plan:
    """WeightsError: names the parameter that no rank publishes, that has another shape, or that ranks describe
    differently, and the boxes that overlap or are missing."""
    wanted = parameters_of(boxes)
    held = _published(manifests)
    for name, (_, shape) in wanted.items():
        if name not in held:
            raise WeightsError(
                f"parameter {name!r} is published by no rank; the publication has {len(held)} others, such as "
                f"{next(iter(held), None)!r}; map the names on one side"
            )
        if held[name][1] != shape:
            raise WeightsError(f"parameter {name!r} has shape {shape} here and {held[name][1]} at its publishers")
    numbers = {name: number for number, name in enumerate(wanted)}
    planner = _core.BoxPlanner()
    shapes: array[int] = array("Q")
    for name, (_, shape) in wanted.items():
        shapes.extend([_dtype(held[name][0]).itemsize, len(shape), *shape])
    phases = [Phase()]
    try:
        planner.add_parameters(list(wanted), shapes.tobytes())
        for manifest in manifests:
            planner.add_sources(manifest.rank, _renumbered(manifest, numbers))
        planner.add_targets(_targets(boxes, numbers, held, staging, phases))
        parts = planner.plan(reader)
    except EngineError as error:
        raise WeightsError(f"{error} (holder: rank)") from error
    plan = Plan(phases, 0, {}, {})
    for phase, rank, nbytes, words in parts:
        if rank not in plan.ranks:
            plan.ranks[rank] = (manifests[rank], engine.import_desc(manifests[rank].description))
        moves = memoryview(words).cast("B").cast("Q", (len(words) // 56, 7))
        phases[phase].reads.append((rank, plan.ranks[rank][1].pairs(moves)))
        plan.bytes_needed += nbytes
        plan.bytes_from[rank] = plan.bytes_from.get(rank, 0) + nbytes
    return plan


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise WeightsError(f"dtype {name!r} of a publisher is unknown to torch {torch.__version__} here")
    return dtype


def _published(manifests: Sequence[Manifest]) -> dict[str, tuple[str, tuple[int, ...]]]:
    held: dict[str, tuple[str, tuple[int, ...]]] = {}
    first: dict[str, int] = {}
    for manifest in manifests:
        for name, dtype, shape in manifest.parameters:
            if held.setdefault(name, (dtype, shape)) != (dtype, shape):
                raise WeightsError(
                    f"parameter {name!r} is {held[name]} at rank {first[name]} and {(dtype, shape)} at rank {manifest.rank}; "
                    "all ranks must publish one dtype and global shape"
                )
            first.setdefault(name, manifest.rank)
    return held


def _renumbered(manifest: Manifest, numbers: dict[str, int]) -> bytes:
    """Its boxes with this reader's numbers of parameters; those that it does not want are left out."""
    table, out = manifest.table, array("Q")
    at = 0
    while at < len(table):
        if table[at] >= len(manifest.parameters):
            raise WeightsError(
                f"the handle of rank {manifest.rank} speaks of parameter {table[at]}, which it does not list"
            )
        name, _, shape = manifest.parameters[table[at]]
        end = at + 3 + 3 * len(shape)
        if name in numbers:
            out.append(numbers[name])
            out.extend(table[at + 1 : end])
        at = end
    return out.tobytes()


def _targets(
    boxes: Sequence[Box],
    numbers: dict[str, int],
    held: dict[str, tuple[str, tuple[int, ...]]],
    staging: torch.Tensor,
    phases: list[Phase],
) -> bytes:
    table: array[int] = array("Q")
    half = staging.numel() // 2
    used = half  # of the current phase's half
    for box in boxes:
        dtype = _dtype(held[box.name][0])
        if dtype == box.tensor.dtype:
            table.extend(box_row(numbers[box.name], 0, box.tensor.data_ptr(), box.offsets, box.tensor))
            continue
        for offsets, target in _pieces(box, half // dtype.itemsize):
            nbytes = target.numel() * dtype.itemsize
            if used + nbytes > half:
                phases.append(Phase())
                used = 0
            start = used + half * (len(phases) % 2)
            staged = staging[start : start + nbytes].view(dtype).view(target.shape)
            used += -(-nbytes // 64) * 64
            phases[-1].conversions.append(Conversion(staged, target))
            table.extend(box_row(numbers[box.name], len(phases) - 1, staged.data_ptr(), offsets, staged))
    return table.tobytes()


def _pieces(box: Box, most: int) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """The box in parts of at most `most` elements."""
    todo = [(box.offsets, box.tensor)]
    done: list[tuple[tuple[int, ...], torch.Tensor]] = []
    while todo:
        offsets, tensor = todo.pop()
        if tensor.numel() <= most:
            done.append((offsets, tensor))
            continue
        dim = next(d for d in range(tensor.dim()) if tensor.shape[d] > 1)
        half = tensor.shape[dim] // 2
        later = tuple(offset + half * (d == dim) for d, offset in enumerate(offsets))
        todo += [(later, tensor.narrow(dim, half, tensor.shape[dim] - half)), (offsets, tensor.narrow(dim, 0, half))]
    return done
