"""verl's CheckpointEngineManager with the engine onesided, and verl's own engine for the same weights.

Trainer and rollout workers are verl's RayWorkerGroups of small Worker classes; the manager is verl's, unmodified.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngineManager, CheckpointEngineRegistry
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.workers.config import CheckpointEngineConfig

SEED = 20261207


def weights(step: int) -> dict[str, torch.Tensor]:
    """Several types and shapes; one tensor is larger than the bucket, one is not contiguous."""
    generator = torch.Generator().manual_seed(SEED + step)
    found = {f"layer.{at}": torch.randn(50 + at, 40, generator=generator) for at in range(12)}
    found["large"] = torch.randn(600, 1000, generator=generator)
    found["transposed"] = torch.randn(30, 20, generator=generator).t()
    found["half"] = torch.randn(33, generator=generator).bfloat16()
    return found


class Side(Worker):
    """A worker of either side: it holds a checkpoint engine as verl's own workers do."""

    def __init__(self) -> None:
        super().__init__()
        from verl.utils.import_utils import import_external_libs

        import_external_libs("onesided.verl")
        self.engine = CheckpointEngineRegistry.new("onesided", bucket_size=1 << 20, rollout_dtype=None, timeout_s=30)
        self.received: dict[str, torch.Tensor] = {}

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.engine, method)(*args, **kwargs)


class Trainer(Side):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "") -> dict[str, Any]:
        await self.engine.send_weights(iter(weights(global_steps or 0).items()), global_steps=global_steps)
        return {}


class Rollout(Side):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None) -> None:
        self.received = {}
        async for name, tensor in self.engine.receive_weights(global_steps=global_steps):
            self.received[name] = tensor.clone()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def compare(self, global_steps: int) -> list[str]:
        wanted = weights(global_steps)
        wrong = [name for name, value in wanted.items() if not torch.equal(self.received.get(name, value + 1), value)]
        return wrong + sorted(set(self.received) - set(wanted)) + [str(self.engine.engine.stats()["regions"])]


class Replica:
    """What the manager asks of a rollout replica besides its workers."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers

    async def _nothing(self, **_: Any) -> None:
        return None

    abort_all_requests = resume_generation = release_kv_cache = resume_kv_cache = _nothing


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        environment = {
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        }
        ray.init("local", num_cpus=8, include_dashboard=False, _temp_dir=folder, runtime_env={"env_vars": environment})
        yield
        ray.shutdown()


def group(kind: type, count: int) -> RayWorkerGroup:
    pool = RayResourcePool([count], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(pool, RayClassWithInitArgs(cls=ray.remote(kind)), device_name="cpu")


def test_the_manager_brings_every_weight_to_every_worker(cluster: None) -> None:
    actors, rollouts = group(Trainer, 2), group(Rollout, 3)
    config = CheckpointEngineConfig(backend="onesided", custom_backend_module="onesided.verl")
    manager = CheckpointEngineManager(config, actors, [Replica(rollouts.workers[:1]), Replica(rollouts.workers[1:])])
    reports = []
    for step in (17, 18, 19):  # the first step is not 1: a resumed run
        manager.update_weights(global_steps=step)
        reports.append(rollouts.compare(step))
    assert all(report == reports[0] for report in reports)
    assert all(len(one) == 1 for one in reports[0]), reports[0]  # only the number of regions, which does not grow


def test_the_example_runs() -> None:
    example = Path(__file__).parents[3] / "examples" / "verl_checkpoint_engine.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("all 3 workers hold weights") == 2
