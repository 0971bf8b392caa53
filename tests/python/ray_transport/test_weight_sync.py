"""Field case C08: 200 tensors in one pool, 100 updates in place, a reader that polls all the time. It accepts whole versions
only, bit for bit, and no memory is registered after the first update."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import pytest
import ray
import torch

import onesided.ray

pytestmark = pytest.mark.usefixtures("cluster")

TENSORS, UPDATES, LAG = 200, 100, 5


def start(device: str) -> None:
    """Before an actor touches its device."""
    if device.startswith("npu"):
        import onesided.ascend_sim

        onesided.ascend_sim.enable()
        import torch_npu  # noqa: F401

        torch.npu.set_device(device)


def expected(version: int) -> torch.Tensor:
    """The first value of each tensor: any mixture of versions, and any mixture of tensors, shows."""
    return torch.arange(TENSORS, dtype=torch.float32) * 1000 + version


@onesided.ray.actor(num_cpus=0, max_concurrency=2)
class Trainer:
    def __init__(self, device: str) -> None:
        start(device)
        pool = onesided.ray.pool(device)
        self.weights = {f"layer{i}": pool.empty(500 + i).fill_(1000 * i) for i in range(TENSORS)}
        self.publisher = onesided.ray.WeightPublisher(self.weights)
        self.taken = threading.Condition()
        self.newest_taken = 0

    def handle(self) -> onesided.ray.WeightsHandle:
        return self.publisher.handle

    def note_taken(self, version: int) -> None:
        with self.taken:
            self.newest_taken = max(self.newest_taken, version)
            self.taken.notify_all()

    def train(self) -> tuple[int, bool]:
        """Updates without a pause, but never more than LAG ahead of the reader. Registrations after the first update, and
        whether every tensor is where it was."""
        places = [tensor.data_ptr() for tensor in self.weights.values()]
        registrations = 0
        for version in range(1, UPDATES + 1):
            with self.publisher.update() as weights:
                for tensor in weights.values():
                    tensor.add_(1)
            if version == 1:
                registrations = onesided.ray.stats()["registrations"]
            with self.taken:
                assert self.taken.wait_for(lambda version=version: self.newest_taken >= version - LAG, 120)
        same = places == [tensor.data_ptr() for tensor in self.weights.values()]
        return onesided.ray.stats()["registrations"] - registrations, same


@onesided.ray.actor(num_cpus=0)
class Rollout:
    def __init__(self, device: str, handle: onesided.ray.WeightsHandle) -> None:
        start(device)
        self.device = device
        self.reader = onesided.ray.WeightReader(handle)

    def follow(self, trainer: Any) -> tuple[list[int], int]:
        """The versions taken, and the registrations after both buffers had been used."""
        versions: list[int] = []
        registrations = 0
        while not versions or versions[-1] < UPDATES:
            version, weights = self.reader.pull(120.0, newer_than=versions[-1] if versions else None)
            self.check(version, weights)
            versions.append(version)
            trainer.note_taken.remote(version)
            if len(versions) == 2:
                registrations = onesided.ray.stats()["registrations"]
        return versions, onesided.ray.stats()["registrations"] - registrations

    def check(self, version: int, weights: dict[str, torch.Tensor]) -> None:
        lowest = torch.stack([tensor.min() for tensor in weights.values()]).cpu()
        highest = torch.stack([tensor.max() for tensor in weights.values()]).cpu()
        assert torch.equal(lowest, expected(version)), f"not version {version}"
        assert torch.equal(highest, expected(version)), f"not version {version}"
        assert {str(tensor.device) for tensor in weights.values()} == {self.device}


@pytest.mark.parametrize(("here", "there"), [("cpu", "cpu"), ("npu:0", "npu:1")])
def test_a_hundred_updates_under_a_reader_that_polls(here: str, there: str) -> None:
    if here != "cpu" and importlib.util.find_spec("torch_npu") is None:
        pytest.skip("torch_npu is not installed")
    trainer = Trainer.remote(here)
    rollout = Rollout.remote(there, ray.get(trainer.handle.remote()))
    following = rollout.follow.remote(trainer)
    registered, in_place = ray.get(trainer.train.remote())
    versions, registered_by_reader = ray.get(following)
    assert versions == sorted(set(versions))
    assert len(versions) >= UPDATES // (LAG + 1)
    assert versions[-1] == UPDATES
    assert (registered, registered_by_reader) == (0, 0)
    assert in_place
