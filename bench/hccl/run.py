"""Starts the ranks, prints what rank 0 measured, and compares."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

from onesided import ascend_sim

RANKS = 2
ROOT = Path(__file__).parents[2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _measure(rounds: int) -> list[dict[str, object]]:
    environment = {
        **os.environ,
        **ascend_sim.environment(),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
        "ONESIDED_SIM_MACHINE": f"bench-{uuid.uuid4().hex[:12]}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
        "TORCH_NPU_WARNING_DISABLE": "1",
    }
    command = [sys.executable, "-m", "bench.hccl.ranks", str(rounds)]
    ranks = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"a rank failed: exit statuses {[rank.returncode for rank in ranks]}")
    return [json.loads(line) for line in printed[0].splitlines() if line.startswith("{")]


def main(json_path: str | None = None, *, rounds: int = 15) -> int:
    """Measures all_reduce between two processes: the simulated runtime ("sim"), gloo, and each of two processors
    adding one half of the buffer and copying the other ("raw")."""
    rows = _measure(rounds)
    if json_path == "-":
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(
                f"{row['op']:<12} {row['bytes']:>12} bytes  {row['peer']:<5} "
                f"median {row['median_us']:>11} us  best {row['best_us']:>11} us"
            )
        if json_path:
            Path(json_path).write_text(json.dumps(rows, indent=1) + "\n")
    return 0
