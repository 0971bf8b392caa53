"""Weight sync, complete: one trainer updates a model in place, N rollouts read it, each whenever it likes.

    TORCH_DEVICE_BACKEND_AUTOLOAD=0 python examples/weight_sync/weight_sync.py            # host tensors, any machine
    onesided sim -- python examples/weight_sync/weight_sync.py --device npu               # simulated NPUs

Ray carries one small handle to each rollout; after that an update is no message at all. A rollout accepts only a version
that was whole, and nothing is registered after the first read.
"""

from __future__ import annotations

import argparse
import time

import ray
import torch

import onesided.ray

MOST_BEHIND = 2


def make_model(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)])


@onesided.ray.actor(num_cpus=0)
class Trainer:
    """Owns the model on one device, in memory that is registered once."""

    def __init__(self, device: str, width: int) -> None:
        self.model = make_model(width)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.publisher = onesided.ray.WeightPublisher(onesided.ray.pool(device).adopt(self.model))
        self.device = device
        self.width = width

    def handle(self) -> onesided.ray.WeightsHandle:
        return self.publisher.handle

    def train(self, updates: int) -> int:
        for step in range(updates):
            batch = torch.full((4, self.width), 0.01 * step, device=self.device)
            loss = self.model(batch).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            with self.publisher.update():
                self.optimizer.step()
        return self.publisher.version

    def checksum(self) -> float:
        return sum(float(p.detach().double().sum().cpu()) for p in self.model.parameters())

    def registrations(self) -> int:
        return onesided.ray.stats()["registrations"]


@onesided.ray.actor(num_cpus=0, max_concurrency=2)
class Rollout:
    """Reads the newest whole version and would generate with it."""

    def __init__(self, handle: onesided.ray.WeightsHandle) -> None:
        self.reader = onesided.ray.WeightReader(handle)
        self.version = 0

    def follow(self, until: int) -> dict[str, float]:
        """Takes versions until this one, as fast as it can."""
        taken, seconds, nbytes, registrations = 0, 0.0, 0, 0
        while self.version < until:
            started = time.perf_counter()
            self.version, weights = self.reader.pull(60.0, newer_than=self.version)
            seconds += time.perf_counter() - started
            nbytes = sum(tensor.nbytes for tensor in weights.values())
            taken += 1
            # Both buffers have been written once after two reads.
            if taken == 2:
                registrations = onesided.ray.stats()["registrations"]
        return {
            "versions_taken": taken,
            "torn_copies": self.reader.torn_reads,
            "gbps": nbytes * taken / seconds / 1e9,
            "registrations_later": onesided.ray.stats()["registrations"] - registrations,
        }

    def at(self) -> int:
        return self.version

    def checksum(self) -> float:
        return sum(float(tensor.double().sum().cpu()) for tensor in self.reader.weights.values())


def run(rollouts: int, updates: int, width: int, device: str) -> None:
    trainer_device = f"{device}:0" if device == "npu" else device
    trainer = Trainer.remote(trainer_device, width)
    handle = ray.get(trainer.handle.remote())
    readers = [Rollout.remote(handle) for _ in range(rollouts)]
    before = ray.get(trainer.registrations.remote())
    following = [reader.follow.remote(updates) for reader in readers]
    version = 0
    while version < updates:
        version = ray.get(trainer.train.remote(1))
        # No actor generates with weights older than this.
        while min(ray.get([reader.at.remote() for reader in readers])) < version - MOST_BEHIND:
            pass
    for number, outcome in enumerate(ray.get(following)):
        print(
            f"rollout {number}: {outcome['versions_taken']} versions taken, {outcome['torn_copies']} torn copies thrown "
            f"away, {outcome['gbps']:.2f} GB/s with the waiting, registrations later: {outcome['registrations_later']}"
        )
    expected = ray.get(trainer.checksum.remote())
    sums = ray.get([reader.checksum.remote() for reader in readers])
    if any(total != expected for total in sums):
        raise SystemExit(f"version {version} differs: the trainer has {expected}, the rollouts {sums}")
    if ray.get(trainer.registrations.remote()) != before:
        raise SystemExit("the trainer registered memory while it trained")
    print(f"version {version} is the same in the trainer and in {rollouts} rollouts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=2)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--device", choices=("cpu", "npu"), default="cpu")
    options = parser.parse_args()
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="error")
    try:
        run(options.rollouts, options.updates, options.width, options.device)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
