"""npu tensors between actors on two simulated NPUs: real Ray, the unmodified torch_npu wheel, aligned pools, and
torch_npu's own segments."""

from __future__ import annotations

import importlib.util
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

ALIGNMENT = 2 << 20


def start_simulator() -> None:
    """In an actor, before its torch_npu is imported."""
    import onesided.ascend_sim

    onesided.ascend_sim.enable()
    import torch_npu  # noqa: F401


@pytest.fixture(scope="module")
def trainer(cluster: None) -> Any:
    import onesided.ray

    @onesided.ray.actor(num_cpus=0)
    class Trainer:
        def __init__(self) -> None:
            start_simulator()
            import torch_npu

            onesided.ray.register_hixl_tensor_transport(["npu", "cpu"])
            torch.npu.set_device(0)
            self.pool = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
            with torch_npu.npu.use_mem_pool(self.pool):
                self.weights = {
                    f"layer{i}": torch.full((1000 * (i + 1),), float(i), dtype=torch.bfloat16, device="npu:0")
                    for i in range(100)
                }
            self.native = torch.arange(100_000, device="npu:0")

        @ray.method(tensor_transport="HIXL")
        def give(self) -> dict[str, torch.Tensor]:
            return self.weights

        @ray.method(tensor_transport="HIXL")
        def make(self, function: Callable[[Any], Any]) -> Any:
            return function(self)

        def update(self) -> None:
            for tensor in self.weights.values():
                tensor.add_(1)

        def misaligned(self) -> int:
            return sum(tensor.data_ptr() % ALIGNMENT != 0 for tensor in self.weights.values())

        def call(self, function: Callable[[Any], Any]) -> Any:
            return function(self)

        def stats(self) -> dict[str, Any]:
            return onesided.ray.stats()

    return Trainer.remote()


@pytest.fixture(scope="module")
def rollout(cluster: None) -> Any:
    import onesided.ray

    @onesided.ray.actor(num_cpus=0)
    class Rollout:
        def __init__(self) -> None:
            start_simulator()
            torch.npu.set_device(1)

        def look(self, value: Any) -> list[tuple[str, str, float]]:
            tensors = list(value.values()) if isinstance(value, dict) else value
            return [(str(t.device), str(t.dtype), float(t.cpu().double().sum())) for t in tensors]

        def call(self, function: Callable[[Any], Any]) -> Any:
            return function(self)

        def stats(self) -> dict[str, Any]:
            return onesided.ray.stats()

    return Rollout.remote()


def test_ten_updates_of_weights_in_an_aligned_pool(trainer: Any, rollout: Any) -> None:
    """They arrive on the receiver's own device, and updates 2 to 10 register nothing on either side."""
    assert ray.get(trainer.misaligned.remote()) == 0
    after_first: list[int] = []
    for update in range(10):
        seen = ray.get(rollout.look.remote(trainer.give.remote()))
        expected = [("npu:1", "torch.bfloat16", 1000.0 * (i + 1) * (i + update)) for i in range(100)]
        assert seen == expected
        now = [side["registrations"] for side in ray.get([trainer.stats.remote(), rollout.stats.remote()])]
        after_first = after_first or now
        ray.get(trainer.update.remote())
    assert now == after_first


def test_tensors_outside_aligned_pools(trainer: Any, rollout: Any) -> None:
    """torch_npu's own segments are registered as wholes: off the 2 MiB boundaries, slices, packed copies, mixed
    devices, no bytes at all."""

    def mixed(self: Any) -> list[torch.Tensor]:
        n = self.native
        return [n, n[5:50], torch.ones(7), n.reshape(100, 1000).t(), n[:0], torch.tensor(3.0, device="npu:0")]

    sums = [float(t.double().sum()) for t in (torch.arange(100_000), torch.arange(5, 50))]
    seen = ray.get(rollout.look.remote(trainer.make.remote(mixed)))
    assert [device for device, _, _ in seen] == ["npu:1", "npu:1", "cpu", "npu:1", "npu:1", "npu:1"]
    assert [total for _, _, total in seen] == [sums[0], sums[1], 7.0, sums[0], 0.0, 3.0]


def test_native_segments_are_given_up_with_their_last_tensor(trainer: Any, rollout: Any, until: Callable) -> None:
    """torch_npu may free a segment as soon as nothing lies in it: it must not be registered any more by then."""

    def fresh(self: Any) -> list[torch.Tensor]:
        return [torch.ones(40 << 20, dtype=torch.uint8, device="npu:0")]

    def give_back(self: Any) -> None:
        torch.npu.empty_cache()

    until(lambda: ray.get(trainer.stats.remote())["objects"] == 0)
    before = ray.get(trainer.stats.remote())["regions"]
    for _ in range(3):
        ref = trainer.make.remote(fresh)
        assert ray.get(rollout.look.remote(ref))[0][2] == float(40 << 20)
        assert ray.get(trainer.stats.remote())["regions"] == before + 1
        del ref
        until(lambda: ray.get(trainer.stats.remote())["regions"] == before)
        ray.get(trainer.call.remote(give_back))


def test_a_pool_that_grows_and_shrinks(trainer: Any, rollout: Any, until: Callable) -> None:
    """Field case C09: a segment that the pool adds later is read without a further call; one that it gives back is refused,
    whatever the device's next owner of those addresses keeps there."""

    def in_a_pool(size: int) -> Callable[[Any], list[ray.ObjectRef]]:
        def put(self: Any) -> list[ray.ObjectRef]:
            if not hasattr(self, "growing"):
                self.growing = onesided.ray.pool("npu:0")
            with self.growing.use():
                return [ray.put([torch.ones(size, dtype=torch.uint8, device="npu:0")], _tensor_transport="HIXL")]

        return put

    def read(self: Any, refs: list[ray.ObjectRef]) -> float:
        manager = ray._private.worker.global_worker.rdt_manager
        self.description = manager.get_rdt_metadata(refs[0].hex()).tensor_transport_meta
        return float(ray.get(refs[0])[0].cpu().double().sum())

    def read_again(self: Any) -> str:
        from ray.experimental.rdt.util import get_tensor_transport_manager

        try:
            get_tensor_transport_manager("HIXL").recv_multiple_tensors("gone", self.description)
        except ray.exceptions.RayDirectTransportError as error:
            return str(error)
        return "it was read"

    small = ray.get(trainer.call.remote(in_a_pool(1 << 20)))
    assert ray.get(rollout.call.remote(lambda self: read(self, small))) == 1 << 20
    before = ray.get(trainer.stats.remote())["regions"]
    large = ray.get(trainer.call.remote(in_a_pool(100 << 20)))
    assert ray.get(rollout.call.remote(lambda self: read(self, large))) == 100 << 20
    assert ray.get(trainer.stats.remote())["regions"] == before + 1
    large.clear()

    def given_back() -> bool:
        ray.get(trainer.call.remote(lambda self: torch.npu.empty_cache()))
        return ray.get(trainer.stats.remote())["regions"] == before

    until(given_back)
    assert "STALE" in ray.get(rollout.call.remote(read_again))
    assert ray.get(rollout.call.remote(lambda self: read(self, small))) == 1 << 20


def test_into_npu_buffers_and_across_devices(trainer: Any, rollout: Any) -> None:
    def fetch(self: Any, refs: list[ray.ObjectRef]) -> list[Any]:
        from ray.experimental.rdt import set_target_device_for_ref, set_target_for_ref

        buffer = torch.zeros(1000, device="npu:0")
        set_target_for_ref(refs[0], [buffer])
        same = ray.get(refs[0])[0] is buffer
        set_target_device_for_ref(refs[0], "cpu")
        on_cpu = ray.get(refs[0])[0]
        set_target_device_for_ref(refs[1], "npu:1")
        on_npu = ray.get(refs[1])[0]
        return [same, float(buffer.sum().cpu()), str(on_cpu.device), float(on_cpu.sum()), str(on_npu.device),
                float(on_npu.sum().cpu())]  # fmt: skip

    def put(self: Any) -> list[ray.ObjectRef]:
        return [
            ray.put([torch.ones(1000, device="npu:0")], _tensor_transport="HIXL"),
            ray.put([torch.full((1000,), 2.0)], _tensor_transport="HIXL"),
        ]

    refs = ray.get(trainer.call.remote(put))
    assert ray.get(rollout.call.remote(lambda self: fetch(self, refs))) == [
        True,
        1000.0,
        "cpu",
        1000.0,
        "npu:1",
        2000.0,
    ]


def test_a_driver_without_npus_is_told_so_and_may_fetch_to_the_cpu(trainer: Any) -> None:
    from ray.exceptions import RayDirectTransportError
    from ray.experimental.rdt import set_target_device_for_ref

    ref = trainer.make.remote(lambda self: self.native)
    with pytest.raises(RayDirectTransportError, match="has no npu"):
        ray.get(ref)
    set_target_device_for_ref(ref, "cpu")
    assert torch.equal(ray.get(ref), torch.arange(100_000))


def test_weights_in_a_transfer_pool_with_a_publisher(trainer: Any, rollout: Any) -> None:
    """onesided.ray.pool on an npu, updated in place, read by versions onto the other npu."""

    def publish(self: Any) -> Any:
        import onesided.ray

        self.transfer_pool = onesided.ray.pool("npu:0")
        with self.transfer_pool.use():
            self.published = {f"w{i}": torch.zeros(10_000, device="npu:0") for i in range(20)}
        assert all(tensor.data_ptr() % ALIGNMENT == 0 for tensor in self.published.values())
        self.publisher = onesided.ray.WeightPublisher(self.published)
        return self.publisher.handle

    def train(self: Any) -> int:
        with self.publisher.update() as weights:
            for tensor in weights.values():
                tensor.add_(1)
        return self.publisher.version

    def pull(self: Any, handle: Any) -> tuple[int, set[str], set[float], int]:
        import onesided.ray

        if not hasattr(self, "reader"):
            self.reader = onesided.ray.WeightReader(handle)
            self.host_reader = onesided.ray.WeightReader(handle, device="cpu")
        version, weights = self.reader.pull(30.0)
        values = {float(value) for t in weights.values() for value in (t.min().cpu(), t.max().cpu())}
        on_host = self.host_reader.pull(30.0)[1]
        assert {(t.device.type, float(t.min()), float(t.max())) for t in on_host.values()} == {
            ("cpu", version, version)
        }
        return version, {str(t.device) for t in weights.values()}, values, onesided.ray.stats()["registrations"]

    handle = ray.get(trainer.call.remote(publish))
    registrations = set()
    for version in range(1, 6):
        assert ray.get(trainer.call.remote(train)) == version
        seen = ray.get(rollout.call.remote(lambda self: pull(self, handle)))
        assert seen[:3] == (version, {"npu:1"}, {float(version)})
        registrations.add(seen[3])
    assert len(registrations) <= 2, "both buffers once"


def test_buffers_that_kernels_still_read_are_not_overwritten(trainer: Any, rollout: Any) -> None:
    """T0: queues copies out of the weights on a stream | T0: pull() into the same buffers -> the copies have the old version."""

    def publish(self: Any) -> Any:
        self.one_publisher = onesided.ray.WeightPublisher({"w": torch.zeros(8 << 20, device="npu:0")})
        return self.one_publisher.handle

    def train(self: Any) -> None:
        with self.one_publisher.update() as weights:
            weights["w"].add_(1)

    def open_reader(self: Any, handle: Any) -> None:
        self.one_reader = onesided.ray.WeightReader(handle, double_buffer=False)
        self.copies = [torch.zeros(8 << 20, device="npu:1") for _ in range(6)]

    def pull_twice(self: Any, trainer: Any) -> tuple[int, set[float], int]:
        version, weights = self.one_reader.pull(30.0)
        ray.get(trainer.call.remote(train))
        with torch.npu.stream(torch.npu.Stream()):
            for copy in self.copies:
                copy.copy_(weights["w"], non_blocking=True)
        newer, _ = self.one_reader.pull(30.0)
        torch.npu.synchronize()
        seen = {float(value.cpu()) for copy in self.copies for value in (copy.min(), copy.max())}
        return version, seen, newer

    handle = ray.get(trainer.call.remote(publish))
    ray.get(rollout.call.remote(lambda self: open_reader(self, handle)))
    for _ in range(3):
        version, seen, newer = ray.get(rollout.call.remote(lambda self: pull_twice(self, trainer)))
        assert seen == {float(version)}
        assert newer == version + 1
