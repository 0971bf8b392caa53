"""The two Ray actors of part 3: one owns a model's weights, one receives them. They contain all the code that a user
has to write.

Importing this module loads torch, torch_npu and Ray: the simulated runtime must be enabled before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import ray

import onesided.ray
from onesided.cli.demo import model
from onesided.cli.demo.alignment import ALIGNMENT

if TYPE_CHECKING:
    import torch

Weights = dict[str, "torch.Tensor"]


@ray.remote
class Trainer:
    """Owns the weights on one NPU, in an aligned pool, and updates them in place. A Ray actor: one call at a time."""

    def __init__(self, device: int, seed: int) -> None:
        import torch
        import torch_npu

        import onesided.npu

        torch.npu.set_device(device)
        onesided.npu.install()
        self._pool = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
        with torch_npu.npu.use_mem_pool(self._pool):
            self._weights = model.make(f"npu:{device}", seed)

    @ray.method(tensor_transport="HIXL")
    def weights(self) -> Weights:
        return self._weights

    def weights_by_value(self) -> Weights:
        """The same object for Ray's object store, which accepts host memory only."""
        return {name: tensor.cpu() for name, tensor in self._weights.items()}

    def update(self, step: int) -> None:
        model.update(self._weights, step)

    def checksums(self) -> dict[str, int]:
        return model.checksums(self._weights)

    def misaligned(self) -> int:
        return sum(tensor.data_ptr() % ALIGNMENT != 0 for tensor in self._weights.values())

    def processor_seconds(self) -> float:
        return time.process_time()

    def registered(self) -> dict[str, int]:
        return registered()


@ray.remote(enable_tensor_transport=True)
class Rollout:
    """Receives weights onto another NPU. A Ray actor: one call at a time."""

    def __init__(self, device: int) -> None:
        import torch

        torch.npu.set_device(device)
        self._device = f"npu:{device}"
        self._weights: Weights = {}

    def receive(self, weights: Weights) -> str:
        """Keeps the received tensors on this actor's device and returns that device."""
        self._weights = {name: tensor.to(self._device) for name, tensor in weights.items()}
        return str(next(iter(weights.values())).device)

    def checksums(self) -> dict[str, int]:
        return model.checksums(self._weights)

    def forget(self) -> None:
        self._weights = {}

    def registered(self) -> dict[str, int]:
        return registered()


def registered() -> dict[str, int]:
    """Registrations made so far and current regions of this process's transport."""
    return onesided.ray.stats()
