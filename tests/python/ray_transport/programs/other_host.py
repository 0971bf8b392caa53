"""Ray over two "hosts": a head in one network namespace, a raylet in another, a veth cable between them. No local socket,
no shared address: the actors reach each other over tcp alone, and the cluster's secret is the only proof of who they are.

Started by test_programs.py in namespaces of its own; tests/process/two_hosts.py has the cable."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

from two_hosts import FAR, NEAR, Cable

GCS_PORT = 6399
RAYLET = ["--num-cpus=2", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]


@contextmanager
def raylet(*command: str):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()  # asked politely it would drain for half a minute; its children end with the namespace
        process.wait()


def actors():
    import ray
    import torch

    import onesided.ray

    @onesided.ray.actor(num_cpus=0)
    class Actor:
        @ray.method(tensor_transport="HIXL")
        def make(self, size):
            return {"t": torch.arange(size)}

        def look(self, value, other):
            """The sum, how many bytes came by each transport, and why not by the others."""
            stats = onesided.ray.process.current().engine.stats()
            [peer] = [peer for engine_id, peer in stats["peers"].items() if engine_id.split(":")[0] == other]
            return int(value["t"].sum()), peer["bytes"], peer["not_used"]

        def engine_id(self):
            return onesided.ray.process.current().engine_id

    return Actor.options(resources={"near": 1}).remote(), Actor.options(resources={"far": 1}).remote()


def refused(engine_id: str, settings: dict[str, str]) -> str:
    """What a stranger is told."""
    from onesided.engine import Engine, EngineError, Status

    with Engine(NEAR, settings) as stranger:
        try:
            stranger.connect(engine_id, 5000)
        except EngineError as error:
            assert error.status == Status.AUTH_FAILED, error
            return str(error)
    raise AssertionError(f"{engine_id} let a stranger in: {settings}")


def drive() -> None:
    import ray
    from ray.exceptions import RayDirectTransportError

    from onesided.engine import Engine
    from onesided.ray import secret

    deadline = time.monotonic() + 60
    while True:  # the raylets come up in their own time
        try:
            ray.init(address=f"{NEAR}:{GCS_PORT}", _node_ip_address=NEAR, logging_level="error", log_to_driver=False)
            break
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    near, far = actors()
    far_id = ray.get(far.engine_id.remote())
    assert far_id.startswith(FAR)
    for size in (10, 5_000_000):
        for owner, reader in ((near, far), (far, near)):
            total, moved, not_used = ray.get(reader.look.remote(owner.make.remote(size), FAR if owner is far else NEAR))
            assert total == size * (size - 1) // 2
            assert set(moved) == {"tcp"} and moved["tcp"] >= 8 * size, moved
            assert {"shm", "cma"} <= set(not_used), not_used
    assert int(ray.get(far.make.remote(100))["t"].sum()) == 4950, "the driver is a consumer too"

    with secret.SecretFile(b"not the secret of this cluster, but as long") as file:
        assert "auth_secret_file" in refused(far_id, {"auth_secret_file": file.path})
    refused(far_id, {})
    with secret.SecretFile(secret.cluster_secret()) as file, Engine(NEAR, {"auth_secret_file": file.path}) as member:
        member.connect(far_id, 5000)

    # A cluster whose members disagree: a driver that started with another secret is told so by Ray's own error.
    ray.shutdown()
    ray.init(address=f"{NEAR}:{GCS_PORT}", _node_ip_address=NEAR, logging_level="error", log_to_driver=False)
    right = secret.cluster_secret
    secret.cluster_secret = lambda: b"what another cluster drew, long enough"
    _, far = actors()
    ref = far.make.remote(100)
    try:
        ray.get(ref)
        raise AssertionError("a driver with the wrong secret read something")
    except RayDirectTransportError as error:
        assert "AUTH_FAILED" in str(error) and "secret" in str(error), error
    secret.cluster_secret = right
    from onesided.ray import process

    process.close()
    assert int(ray.get(ref)["t"].sum()) == 4950, "with the right secret the same object comes"
    ray.shutdown()


if __name__ == "__main__":
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", *RAYLET]
    os.environ["RAY_AUTH_MODE"] = "disabled"  # Ray's own token has a file in the user's home
    with Cable() as cable:
        head = [*start, "--head", f"--node-ip-address={NEAR}", f"--port={GCS_PORT}", "--include-dashboard=false"]
        worker = [*cable.there, *start, f"--address={NEAR}:{GCS_PORT}", f"--node-ip-address={FAR}"]
        with raylet(*head, '--resources={"near": 2}'), raylet(*worker, '--resources={"far": 2}'):
            drive()
    print("two hosts over tcp")
