"""Whole programs with a Ray of their own: the example, and what is left when Ray has been shut down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onesided

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(onesided.__file__).resolve().parent.parent


def run(code: list[str], **environment: str) -> str:
    """The output of a program; fails with it when the program does."""
    done = subprocess.run(
        [sys.executable, *code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ
        | {"PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_weight_sync_example() -> None:
    out = run(
        [str(ROOT / "examples/weight_sync/weight_sync.py"), "--rollouts", "2", "--updates", "20", "--width", "256"]
    )
    assert "version 20 is the same in the trainer and in 2 rollouts" in out
    assert out.count("0 registrations later") == 2


# Twice Ray in one process; then what is left of ours: threads by their number, sockets, shared memory.
_SHUTDOWN = """
import os, threading
import ray, torch
import onesided.ray
from onesided.ray import process

def ours():
    fds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    return sorted(name for name in fds if "memfd:onesided" in name)

def native_threads():
    names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
    return [name for name in names if name.startswith("os-") or "onesided" in name]

@ray.remote(enable_tensor_transport=True, num_cpus=0)
class Owner:
    @ray.method(tensor_transport="HIXL")
    def make(self):
        return torch.ones(1_000_000)

ids = []
for _ in range(2):
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
    owner = Owner.remote()
    tensor = ray.get(owner.make.remote())
    ids.append(process.current().engine_id)
    ray.shutdown()
    assert process.peek() is None
    port = int(ids[-1].rsplit(":", 1)[1])
    import socket
    with socket.socket() as probe:
        assert probe.connect_ex((ids[-1].rsplit(":", 1)[0], port)) != 0, "the port still listens"
    assert float(tensor.sum()) == 1e6, "what was received outlives the engine"
assert ids[0] != ids[1]
del tensor
assert ours() == [], ours()
assert native_threads() == [], native_threads()
print("nothing is left")
"""


def test_shutdown_leaves_nothing_and_ray_may_start_again() -> None:
    shared_before = set(os.listdir("/dev/shm"))
    assert "nothing is left" in run(["-c", _SHUTDOWN])
    left = {name for name in set(os.listdir("/dev/shm")) - shared_before if "onesided" in name}
    assert left == set()


# Two raylets; between them only tcp. The secret comes from the cluster, nothing is configured.
_TWO_NODES = """
import os
import ray, torch
import onesided.ray
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "resources": {"first": 1}})
cluster.add_node(num_cpus=2, resources={"second": 1})
ray.init(address=cluster.address, logging_level="error")

@onesided.ray.actor(num_cpus=0)
class Actor:
    @ray.method(tensor_transport="HIXL")
    def make(self, size):
        return {"t": torch.arange(size)}
    def look(self, value):
        from onesided.ray import process
        engine = process.current().engine.stats()
        [peer] = [peer for id, peer in engine["peers"].items() if id != engine["id"] and peer["transfers"] == 0][:1]
        return int(value["t"].sum()), peer["bytes"]
    def node(self):
        return ray.get_runtime_context().get_node_id()

tcp = {"env_vars": {"ONESIDED_RAY_TRANSPORTS": "tcp", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}}
owner = Actor.options(resources={"first": 1}, runtime_env=tcp).remote()
reader = Actor.options(resources={"second": 1}, runtime_env=tcp).remote()
assert len(set(ray.get([owner.node.remote(), reader.node.remote()]))) == 2
for size in (10, 5_000_000):
    total, moved = ray.get(reader.look.remote(owner.make.remote(size)))
    assert total == size * (size - 1) // 2
    assert set(moved) == {"tcp"} and moved["tcp"] >= 8 * size, moved
from ray.experimental import internal_kv
assert len(internal_kv._internal_kv_get(b"onesided:auth_secret", namespace=b"onesided")) >= 32
ray.shutdown()
cluster.shutdown()
print("two nodes over tcp")
"""


@pytest.mark.filterwarnings("ignore")
def test_two_nodes_over_tcp() -> None:
    assert "two nodes over tcp" in run(["-c", _TWO_NODES])
