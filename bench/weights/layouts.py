"""The layouts that are measured: who publishes which box of which parameter, and who wants which."""

from __future__ import annotations

from dataclasses import dataclass

Place = tuple[tuple[int, ...], tuple[int, ...]]
"""Offsets and sizes in the global shape."""


@dataclass(frozen=True)
class Case:
    """shapes by name; for each publisher and each reader the places that it has of each name."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    publishers: list[dict[str, Place]]
    readers: list[dict[str, Place]]


def _cut(shape: tuple[int, ...], dim: int, count: int, rank: int) -> Place:
    size = shape[dim] // count
    offsets = tuple(rank * size * (d == dim) for d in range(len(shape)))
    return offsets, tuple(size if d == dim else extent for d, extent in enumerate(shape))


def _whole(shape: tuple[int, ...]) -> Place:
    return (0,) * len(shape), shape


def cases(mib: int) -> list[Case]:
    layers = 16
    width = 64 * max(1, round((mib * 2**20 / 4 / 2 / layers) ** 0.5 / 64))
    dense = {f"layers.{i}.{kind}": (width, width) for i in range(layers) for kind in ("rows", "columns")}

    def tensor_parallel(count: int, rank: int) -> dict[str, Place]:
        return {name: _cut(shape, int("columns" in name), count, rank) for name, shape in dense.items()}

    expert = {f"experts.{i}": (width // 2, width) for i in range(64)}
    names = list(expert)

    def expert_parallel(count: int, rank: int) -> dict[str, Place]:
        return {name: _whole(expert[name]) for name in names[rank * 64 // count : (rank + 1) * 64 // count]}

    return [
        Case(
            "fsdp4_to_tp2",
            dense,
            [{name: _cut(shape, 0, 4, rank) for name, shape in dense.items()} for rank in range(4)],
            [tensor_parallel(2, rank) for rank in range(2)],
        ),
        Case("tp4_to_tp2", dense, [tensor_parallel(4, r) for r in range(4)], [tensor_parallel(2, r) for r in range(2)]),
        Case(
            "ep8_to_ep2", expert, [expert_parallel(8, r) for r in range(8)], [expert_parallel(2, r) for r in range(2)]
        ),
        Case(
            "replicas1_to_4",
            dense,
            [{name: _whole(shape) for name, shape in dense.items()}],
            [{name: _whole(shape) for name, shape in dense.items()} for _ in range(4)],
        ),
    ]
