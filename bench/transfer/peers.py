"""Engines behind their Python interfaces, ours among them: each runs in two fresh processes on the same shapes.

Peers come from this environment, or from the folder that ONESIDED_BENCH_PEERS names: the tests install Mooncake's Ascend
build, which owns the same package folder as its build for hosts, so the latter needs a place of its own.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_INTO = "pip install --no-deps --target DIR {}, then set ONESIDED_BENCH_PEERS=DIR"
# By name: the module that has to be importable, and how to get it.
PEERS = {
    "onesided_python": ("onesided", "pip install ."),
    "mooncake": ("mooncake", _INTO.format("mooncake-transfer-engine-non-cuda==0.3.13.post1")),
    "nixl": ("nixl_cu12", _INTO.format("nixl-cu12==1.5.1")),
}
_WORKER = Path(__file__).with_name("peer_worker.py")
_TIMEOUT_S = 300


def _is_ascend_build() -> bool:
    try:
        importlib.metadata.distribution("mooncake-transfer-engine-npu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def measure_peer(name: str, shapes: list[tuple[int, int]], buffer_bytes: int) -> tuple[list[dict[str, Any]], str]:
    """Rows of one peer, or none and why."""
    module, how = PEERS[name]
    folder = os.environ.get("ONESIDED_BENCH_PEERS", "")
    if folder and not Path(folder).is_dir():
        raise SystemExit(f"bench transfer: ONESIDED_BENCH_PEERS={folder} is not a folder")
    if not (folder and (Path(folder) / module).is_dir()):
        if importlib.util.find_spec(module) is None:
            return [], f"{module} is not installed ({how})"
        if name == "mooncake" and _is_ascend_build():
            return [], f"only its Ascend build is installed here ({how})"
    path = os.pathsep.join(entry for entry in (folder, os.environ.get("PYTHONPATH", "")) if entry)
    work = json.dumps({"peer": name, "shapes": shapes, "buffer": buffer_bytes})
    try:
        ended = subprocess.run(
            [sys.executable, str(_WORKER), "reader", work],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=os.environ | {"PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return [], f"no end after {_TIMEOUT_S} s"
    rows = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"peer"')]
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        return rows, f"its reader ended with {ended.returncode}: {said[-1] if said else 'silently'}"
    return rows, ""
