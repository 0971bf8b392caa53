"""verl's checkpoint engine over onesided: one trainer, two rollout workers, two updates.

Run it where verl 0.9 is installed: `python examples/verl_checkpoint_engine.py`. In verl itself two lines of configuration
do the same: `checkpoint_engine.backend: onesided` and `checkpoint_engine.custom_backend_module: onesided.verl`.
"""

from __future__ import annotations

import os

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

import ray
import torch

TRAINERS, ROLLOUTS = 1, 2


@ray.remote(num_cpus=0)
class Worker:
    """What verl's workers do with a checkpoint engine, the trainer and the rollout alike."""

    def __init__(self) -> None:
        from verl.utils.import_utils import import_external_libs

        import_external_libs("onesided.verl")
        from verl.checkpoint_engine.base import CheckpointEngineRegistry

        self.engine = CheckpointEngineRegistry.new("onesided", bucket_size=1 << 20, rollout_dtype=None)
        self.weights = {f"layer.{index}": torch.zeros(300, 200) for index in range(8)}

    def execute(self, method: str, **arguments: object) -> object:
        return getattr(self.engine, method)(**arguments)

    async def train(self, step: int) -> float:
        for index, weight in enumerate(self.weights.values()):
            weight.fill_(step * 100 + index)
        await self.engine.send_weights(iter(self.weights.items()), global_steps=step)
        return self.total()

    async def update(self, step: int) -> float:
        async for name, weight in self.engine.receive_weights(global_steps=step):
            self.weights[name].copy_(weight)
        return self.total()

    def total(self) -> float:
        return float(sum(weight.double().sum() for weight in self.weights.values()))


def main() -> None:
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        from onesided.verl import OnesidedCheckpointEngine

        workers = [Worker.remote() for _ in range(TRAINERS + ROLLOUTS)]
        for step in (1, 2):
            metadata = ray.get([worker.execute.remote("prepare") for worker in workers])
            topology = OnesidedCheckpointEngine.build_topology(TRAINERS, ROLLOUTS, metadata)
            arguments = [
                {key: values[at] for key, values in group.items()}
                for group, size in zip(topology, (TRAINERS, ROLLOUTS), strict=True)
                for at in range(size)
            ]
            ray.get(
                [
                    one.execute.remote("init_process_group", **given)
                    for one, given in zip(workers, arguments, strict=True)
                ]
            )
            totals = ray.get([workers[0].train.remote(step), *[one.update.remote(step) for one in workers[1:]]])
            ray.get([worker.execute.remote("finalize") for worker in workers])
            assert len(set(totals)) == 1, totals
            print(f"step {step}: all {len(totals)} workers hold weights whose sum is {totals[0]:.0f}")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
