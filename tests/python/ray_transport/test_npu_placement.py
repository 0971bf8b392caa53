"""Where npu tensors are and how they get there: actors that Ray gives one NPU each, and actors that only the vendor's engine
library joins."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import pytest
import ray
import torch

import onesided.ray

pytestmark = [
    pytest.mark.usefixtures("cluster"),
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]

FOUR_NPUS = {"ONESIDED_SIM_DEVICES": "4"}


@onesided.ray.actor(num_cpus=0)
class NpuActor:
    """An actor on the simulated runtime."""

    def __init__(self) -> None:
        import onesided.ascend_sim

        onesided.ascend_sim.enable()
        import torch_npu  # noqa: F401

        self.kept: list[torch.Tensor] = []

    @ray.method(tensor_transport="HIXL")
    def make(self, function: Callable[[Any], Any]) -> Any:
        return function(self)

    def keep(self, value: list[torch.Tensor]) -> list[tuple[str, float]]:
        self.kept = value
        return [(str(tensor.device), float(tensor.cpu().double().sum())) for tensor in value]

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(self)


def what_ray_gave(self: Any) -> tuple[list[str], str, int]:
    given = ray.get_runtime_context().get_accelerator_ids()["NPU"]
    return given, os.environ["ASCEND_RT_VISIBLE_DEVICES"], torch.npu.device_count()


def test_actors_with_one_npu_each(cluster: None) -> None:
    """resources={"NPU": 1}: Ray sets ASCEND_RT_VISIBLE_DEVICES, so each actor's npu:0 is another chip (which the simulator's own
    tests show: tests/python/sim), and what the owner has on its npu:0 arrives on the reader's."""
    one = NpuActor.options(resources={"NPU": 1}, runtime_env={"env_vars": FOUR_NPUS})
    owner, reader = one.remote(), one.remote()
    chips = []
    for given, visible, count in ray.get([actor.call.remote(what_ray_gave) for actor in (owner, reader)]):
        assert given == [visible]
        assert count == 1
        chips.append(visible)
    assert chips[0] != chips[1]
    made = owner.make.remote(lambda self: [torch.arange(1000, device="npu"), torch.ones(3)])
    assert ray.get(reader.keep.remote(made)) == [("npu:0", 499500.0), ("cpu", 3.0)]


def test_an_npu_that_is_not_there_is_refused_at_once(cluster: None) -> None:
    def try_it(self: Any) -> list[str]:
        told = []
        for attempt in (
            lambda: onesided.ray.register_hixl_tensor_transport(device="npu:9"),
            lambda: onesided.ray.pool("npu:9"),
        ):
            try:
                attempt()
            except ValueError as error:
                told.append(str(error))
        return told

    told = ray.get(NpuActor.remote().call.remote(try_it))
    assert len(told) == 2
    assert all("'npu:9': this process has" in text for text in told)


def test_over_the_vendors_engine_library(cluster: None) -> None:
    """The vendor's library snapshots the registered memory when it connects. What is registered later, on either side, is
    read all the same: the transport connects anew."""
    ascend = {"env_vars": {"ONESIDED_RAY_TRANSPORTS": "ascend"}}
    owner, reader = NpuActor.options(runtime_env=ascend).remote(), NpuActor.options(runtime_env=ascend).remote()

    def in_a_new_pool(value: int) -> Callable[[Any], list[torch.Tensor]]:
        def make(self: Any) -> list[torch.Tensor]:
            pool = onesided.ray.pool("npu:0")
            with pool.use():
                tensor = torch.full((3 << 20,), value, dtype=torch.uint8, device="npu:0")
            self.kept.append(tensor)
            return [tensor]

        return make

    def engine(self: Any) -> dict[str, Any]:
        from onesided.ray import process

        stats = process.current().engine.stats()
        [peer] = [peer for engine_id, peer in stats["peers"].items() if engine_id != stats["id"]]
        return peer["bytes"] | {"regions": stats["regions"]}

    regions = []
    for value in (1, 2, 3):
        assert ray.get(reader.keep.remote(owner.make.remote(in_a_new_pool(value)))) == [
            ("npu:0", float(value * (3 << 20)))
        ]
        seen = ray.get(reader.call.remote(engine))
        assert seen["ascend"] >= value * (3 << 20), seen
        assert set(seen) == {"ascend", "regions"}
        regions.append(ray.get(owner.call.remote(lambda self: onesided.ray.stats()["regions"])))
    assert regions[0] < regions[1] < regions[2], "each object lies in memory that was registered after the connection"
