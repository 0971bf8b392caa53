"""Tensors' memory, registered with an engine: each storage once, however many tensors lie in it."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import torch

from onesided.engine import Engine
from onesided.weights.boxes import Box


class RegisteredMemory:
    """The storages of some tensors. Closed by its owner; confined to a thread."""

    def __init__(self, engine: Engine, tensors: Iterable[torch.Tensor]) -> None:
        """EngineError: memory that cannot be registered (an NPU's outside an aligned pool: MISALIGNED)."""
        self._engine = engine
        self._storages: dict[int, Any] = {}  # kept alive while registered
        self._handles: list[Any] = []
        kinds: dict[int, str] = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.nbytes() > 0:
                self._storages[storage.data_ptr()] = storage
                kinds[storage.data_ptr()] = "host" if tensor.device.type == "cpu" else "device"
        self.ranges = sorted((address, storage.nbytes()) for address, storage in self._storages.items())
        self._starts = [address for address, _ in self.ranges]
        try:
            for address, nbytes in self.ranges:
                self._handles.append(engine.register_mem(address, nbytes, kinds[address]))
        except BaseException:
            self.close()
            raise

    def place(self, address: int) -> tuple[int, int]:
        """Which range holds it, and where in it."""
        index = bisect_right(self._starts, address) - 1
        return index, address - self._starts[index]

    def close(self) -> None:
        """Idempotent."""
        for handle in self._handles:
            self._engine.deregister_mem(handle)
        self._handles.clear()
        self._storages.clear()


def box_row(parameter: int, item: int, base: int, offsets: Iterable[int], tensor: torch.Tensor) -> array[int]:
    """A box as the planner takes it."""
    nbytes = tensor.element_size()
    strides = [max(stride, 1) * nbytes for stride in tensor.stride()]
    return array("Q", [parameter, item, base, *offsets, *tensor.shape, *strides])


def parameters_of(boxes: Iterable[Box]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {box.name: (str(box.tensor.dtype).removeprefix("torch."), box.shape) for box in boxes}
