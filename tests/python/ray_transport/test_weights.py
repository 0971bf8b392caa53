"""Weights that are updated in place while others read them: a reader takes whole versions only."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import ray
import torch
from ray.exceptions import RayDirectTransportError

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def trainer(cluster: None) -> Any:
    import onesided.ray

    @onesided.ray.actor(num_cpus=0, max_concurrency=2)
    class Trainer:
        """Holds 20 weights that are all equal to the version: any mixture shows."""

        def __init__(self) -> None:
            self.weights = {f"w{i}": torch.zeros(50_000) for i in range(20)}
            self.publisher = onesided.ray.WeightPublisher(self.weights)

        def handle(self) -> Any:
            return self.publisher.handle

        def train(self, updates: int) -> int:
            for _ in range(updates):
                with self.publisher.update() as weights:
                    for tensor in weights.values():
                        tensor.add_(1)
            return self.publisher.version

        def fail_in_the_middle(self) -> None:
            try:
                with self.publisher.update() as weights:
                    weights["w0"].add_(1)
                    raise RuntimeError("training diverged")
            except RuntimeError:
                pass

        def repair(self) -> None:
            with self.publisher.update() as weights:
                for tensor in weights.values():
                    tensor.fill_(self.publisher.version + 1)

        def close(self) -> None:
            self.publisher.close()

    return Trainer.remote()


@pytest.fixture(scope="module")
def rollout(trainer: Any) -> Any:
    import onesided.ray

    @onesided.ray.actor(num_cpus=0)
    class Rollout:
        def __init__(self, handle: Any) -> None:
            self.reader = onesided.ray.WeightReader(handle)

        def pull(self, timeout_s: float = 30.0, newer_than: int | None = None) -> tuple[int, set[float], str | None]:
            """The version, the values found in it, and the failure, if any."""
            try:
                version, weights = self.reader.pull(timeout_s, newer_than=newer_than)
            except (TimeoutError, RayDirectTransportError) as error:
                return -1, set(), f"{type(error).__name__}: {error}"
            return version, {float(value) for t in weights.values() for value in (t.min(), t.max())}, None

    return Rollout.remote(ray.get(trainer.handle.remote()))


def test_a_version_is_waited_for_and_the_wait_ends(trainer: Any, rollout: Any) -> None:
    version, values, _ = ray.get(rollout.pull.remote())
    assert values == {float(version)}
    failed = ray.get(rollout.pull.remote(0.3, version))[2]
    assert failed is not None
    assert "no complete version after" in failed
    waiting = rollout.pull.remote(30.0, version)
    ray.get(trainer.train.remote(1))
    assert ray.get(waiting)[:2] == (version + 1, {float(version + 1)})


def test_an_update_that_fails_is_never_taken(trainer: Any, rollout: Any) -> None:
    version = ray.get(rollout.pull.remote())[0]
    ray.get(trainer.fail_in_the_middle.remote())
    assert "no complete version" in str(ray.get(rollout.pull.remote(0.3))[2])
    ray.get(trainer.repair.remote())
    assert ray.get(rollout.pull.remote())[:2] == (version + 1, {float(version + 1)})


def test_closed_weights_are_refused(trainer: Any, rollout: Any) -> None:
    ray.get(trainer.close.remote())
    ray.get(trainer.close.remote())
    assert "RayDirectTransportError" in str(ray.get(rollout.pull.remote(5.0))[2])


def test_weights_must_be_dense(cluster: None) -> None:
    import onesided.ray

    with pytest.raises(ValueError, match="'w' is not dense"):
        onesided.ray.WeightPublisher({"w": torch.ones(3, 4).t()})


def test_publisher_and_reader_in_one_process(cluster: None) -> None:
    import onesided.ray

    weight = torch.zeros(1000)
    with onesided.ray.WeightPublisher({"w": weight, "empty": torch.empty(0)}) as publisher:
        reader = onesided.ray.WeightReader(publisher.handle, double_buffer=False)
        stop = threading.Event()
        pulled = threading.Semaphore()

        def train() -> None:
            while not stop.is_set():
                for _ in range(3):
                    with publisher.update():
                        weight.add_(1)
                # A trainer that never pauses may tear every copy: it goes on when the reader has had one.
                pulled.acquire()

        thread = threading.Thread(target=train)
        thread.start()
        try:
            for _ in range(10):
                version, weights = reader.pull(30.0)
                assert set(weights["w"].tolist()) == {float(version)}
                pulled.release()
        finally:
            stop.set()
            pulled.release()
            thread.join()


@pytest.mark.parametrize("double_buffer", [True, False])
def test_a_copy_that_an_update_overtook_is_thrown_away(cluster: None, double_buffer: bool) -> None:
    """T0: reads the stamp | T0: reads the weights | T1: an update | T0: reads the stamp again -> not accepted, read anew."""
    import onesided.ray

    weights = {"a": torch.zeros(100), "b": torch.zeros(100)}
    with onesided.ray.WeightPublisher(weights) as publisher:
        reader = onesided.ray.WeightReader(publisher.handle, double_buffer=double_buffer)
        read = reader._read

        def overtaken(metadata: Any, buffers: Any, deadline: float) -> None:
            read(metadata, buffers, deadline)
            if metadata is publisher.handle.weights and publisher.version < 3:
                with publisher.update() as writable:
                    for tensor in writable.values():
                        tensor.add_(1)

        reader._read = overtaken
        version, taken = reader.pull(30.0)
        assert (version, reader.torn_reads) == (3, 3)
        assert {float(value) for tensor in taken.values() for value in tensor} == {3.0}


def test_mistakes_with_a_publisher_are_told(cluster: None) -> None:
    import onesided.ray

    weight = torch.zeros(10)
    with onesided.ray.WeightPublisher({"w": weight}) as publisher:
        with pytest.raises(TypeError), publisher.update() as weights:
            weights["w"] = torch.ones(10)  # type: ignore[index]
        with pytest.raises(RuntimeError, match=r"update\(\) inside update\(\)"), publisher.update(), publisher.update():
            pass
        with pytest.raises(ValueError, match="weight 'w' has been moved"), publisher.update():
            weight.resize_(1_000_000)
    with onesided.ray.WeightPublisher(torch.nn.Linear(3, 2)) as publisher:
        assert set(publisher.handle.names) == {"weight", "bias"}
        reader = onesided.ray.WeightReader(publisher.handle)
    with pytest.raises(
        RayDirectTransportError, match=r"the weights' publisher at .* was closed or has ended; get a new"
    ):
        reader.pull(5.0)


def test_a_model_in_a_host_pool_registers_nothing_more(cluster: None) -> None:
    import onesided.ray

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 64))
    model[2].bias = torch.nn.Parameter(torch.ones(64))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pool = onesided.ray.pool("cpu")
    state = pool.adopt(model)
    assert all(torch.equal(state[name], value) for name, value in before.items())
    model(torch.randn(4, 64)).pow(2).sum().backward()
    optimizer.step()
    assert not torch.equal(state["0.weight"], before["0.weight"]), "the optimizer trains what is in the pool"
    registrations = onesided.ray.stats()["registrations"]
    ref = ray.put(state, _tensor_transport="HIXL")
    assert onesided.ray.stats()["registrations"] == registrations
    assert torch.equal(ray.get(ref)["0.weight"], state["0.weight"])
    assert pool.empty(3, 4).shape == pool.empty((3, 4)).shape == (3, 4)
    shared = torch.nn.Linear(2, 2)
    shared.bias = torch.nn.Parameter(shared.weight.data[0])
    with pytest.raises(ValueError, match="views of one storage"):
        pool.adopt(shared)
    with pytest.raises(RuntimeError, match="host pool"), pool.use():
        pass
    for device in ("npu", "cuda:0"):
        with pytest.raises(ValueError, match="with its index"):
            onesided.ray.pool(device)
