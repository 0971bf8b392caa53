"""One producer and one consumer, the same for every way to move an object; only the method that gives it differs."""

from __future__ import annotations

import ray
import torch

import onesided.ray  # noqa: F401  registers HIXL

from . import nothing

nothing.register()


class Producer:
    """Makes an object of `count` tensors that hold the round's number, and gives it. A Ray actor."""

    def __init__(self) -> None:
        nothing.register()
        self.tensors: list[torch.Tensor] = []

    def prepare(self, size: int, count: int) -> None:
        self.tensors = []
        self.tensors = [torch.zeros(size // 4, dtype=torch.int32) for _ in range(count)]

    def stamp(self, number: int) -> None:
        """Every tensor's first and last element: enough to see that this round's bytes came."""
        for tensor in self.tensors:
            tensor[0] = tensor[-1] = number

    def by_store(self) -> list[torch.Tensor]:
        return self.tensors

    @ray.method(tensor_transport="HIXL")
    def by_onesided(self) -> list[torch.Tensor]:
        return self.tensors

    @ray.method(tensor_transport="GLOO")
    def by_gloo(self) -> list[torch.Tensor]:
        return self.tensors

    @ray.method(tensor_transport="NOTHING")
    def by_nothing(self) -> list[torch.Tensor]:
        return self.tensors

    def raw_copy_seconds(self, rounds: int) -> list[float]:
        """Copies of the same bytes inside this process, into memory that has been touched: the ceiling."""
        import time

        source = self.tensors
        target = [tensor.clone() for tensor in source]
        seconds = []
        for _ in range(rounds):
            started = time.perf_counter()
            for a, b in zip(target, source, strict=True):
                a.copy_(b)
            seconds.append(time.perf_counter() - started)
        return seconds


class Consumer:
    """Takes an object and looks at its stamps. A Ray actor."""

    def __init__(self) -> None:
        nothing.register()

    def take(self, tensors: list[torch.Tensor], writable: bool = False) -> tuple[int, int]:
        """The smallest and the largest stamp. `writable`: tensors that are read-only views are copied first, for who
        receives weights writes into them."""
        if writable:
            tensors = [tensor.clone() for tensor in tensors]
        stamps = {int(value) for tensor in (tensors[0], tensors[-1]) for value in (tensor[0], tensor[-1])}
        return min(stamps), max(stamps)
