"""Trainers and rollouts as processes: the example as it stands, and ranks that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Imported here, once, so that the setting it needs does not stay for other tests.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    torch = pytest.importorskip("torch", reason="weights are torch tensors: pip install onesided[ray]")

from onesided import weights

EXAMPLE = Path(__file__).parents[2] / "examples" / "weights" / "fsdp_to_tp.py"
PUBLISHER = """
import sys, torch
from onesided import weights
rank, value, version = int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
part = weights.Slice(torch.full((1 << 18,), value), (2 << 18,), (rank << 18,))
publication = weights.publish({"w": part}, rank=rank, world=2, at=sys.argv[1])
publication.begin_update()
print("begun", flush=True)
for line in sys.stdin:
    if line == "commit\\n":
        publication.commit(version)
    elif line == "begin\\n":
        publication.begin_update()
    print("done", flush=True)
"""


class Publisher:
    """A process with one rank's half. Killed at the end, whatever happened."""

    def __init__(self, at: Path, rank: int, value: float, version: int) -> None:
        command = [sys.executable, "-c", PUBLISHER, str(at), str(rank), str(value), str(version)]
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "begun\n"

    def tell(self, what: str) -> None:
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fsdp_on_four_to_tp_on_two(tmp_path, dtype):
    command = [
        sys.executable,
        str(EXAMPLE),
        "--folder",
        str(tmp_path),
        "--layers",
        "2",
        "--hidden",
        "56",
        "--dtype",
        dtype,
    ]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for rank in range(2):
        assert f"rollout {rank}: 26 tensors of 3 versions are the trainers' own" in ran.stdout


@pytest.mark.parametrize("when", ["before it commits", "after it committed", "in its next update"])
def test_a_rank_that_dies_and_comes_back(tmp_path, when):
    mine = {"w": torch.zeros(2 << 18)}
    with Publisher(tmp_path, 0, 1.0, 5) as first, Publisher(tmp_path, 1, 1.0, 5) as second:
        first.tell("commit")
        if when != "before it commits":
            second.tell("commit")
        with weights.subscribe(mine, at=tmp_path) as subscription:
            if when != "before it commits":
                assert subscription.update(20).version == 5
            if when == "in its next update":
                second.tell("begin")
            second.kill()
            with pytest.raises(weights.WeightsError, match=r"rank 1"):
                subscription.update(1)
            assert subscription.usable == (when != "before it commits")
            with Publisher(tmp_path, 1, 1.0, 6) as again, Publisher(tmp_path, 0, 1.0, 6) as other:
                again.tell("commit")
                other.tell("commit")
                assert subscription.update(20).version == 6
                assert torch.equal(mine["w"], torch.ones(2 << 18))
