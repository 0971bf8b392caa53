"""torch.distributed with the backend "hccl" of the unmodified torch_npu wheel, in several processes."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys

import pytest
from run_sim import HERE, sim_environment

if importlib.util.find_spec("torch_npu") is None:
    pytest.skip("torch_npu is not installed", allow_module_level=True)


def run_ranks(what: str, ranks: int, timeout: int = 240) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = sim_environment(
        ONESIDED_SIM_DEVICES=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks),
        OMP_NUM_THREADS="1",
    )  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "ranks.py"), what],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        done = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, out, err) for process, (out, err) in zip(processes, done, strict=True)]


def test_everything_equals_gloo_or_one_process() -> None:
    ended = run_ranks("all", 2)
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert ended[0][1].count(": ok") == 8


def test_a_killed_rank_is_an_error_of_the_others() -> None:
    ended = run_ranks("killed", 2)
    assert [status for status, _, _ in ended] == [0, -9], ended
    assert "heard" in ended[0][1]
