"""Twice Ray in one process, each time with all that may hold an engine; after ray.shutdown() none of it is left."""

import os
import socket
import threading

import ray
import torch

import onesided.ray
from onesided.ray import process


def listens(engine_id: str) -> bool:
    host, port = engine_id.rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def shared_memory_of_ours() -> list[str]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return [name for name in names if "memfd:onesided" in name]


def threads_of_ours() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm") as comm:
            names.append(comm.read().strip())
    return [name for name in names if "onesided" in name or name.startswith("os-")]


@ray.remote(enable_tensor_transport=True, num_cpus=0)
class Owner:
    @ray.method(tensor_transport="HIXL")
    def make(self) -> torch.Tensor:
        return torch.ones(1_000_000)


python_threads = set(threading.enumerate())
ids = []
for _ in range(2):
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="error")
    owner = Owner.remote()
    tensor = ray.get(owner.make.remote())
    pool = onesided.ray.pool("cpu")
    publisher = onesided.ray.WeightPublisher({"w": pool.empty((1000,)).fill_(1)})
    reader = onesided.ray.WeightReader(publisher.handle)
    assert reader.pull(10.0)[1]["w"].sum() == 1000
    here = process.current()
    ids.append(here.engine_id)
    assert listens(here.engine_id)
    assert threads_of_ours() != []

    ray.shutdown()
    assert process.peek() is None
    assert not listens(ids[-1]), "the port still listens"
    assert threads_of_ours() == [], threads_of_ours()
    assert float(tensor.sum()) == 1e6, "what was received outlives the engine"
    try:
        reader.pull(1.0)
        raise SystemExit("a reader of an engine that has ended read something")
    except ray.exceptions.RayDirectTransportError as error:
        assert "CLOSED" in str(error), error
assert ids[0] != ids[1]
del tensor, pool, publisher, reader, here
assert shared_memory_of_ours() == [], shared_memory_of_ours()
left = {thread.name for thread in set(threading.enumerate()) - python_threads}
assert not any("onesided" in name for name in left), left
print("nothing is left")
