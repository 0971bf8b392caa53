"""Engines behind their Python interfaces, ours among them: each runs in two fresh processes on the same shapes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# By name: the module that has to be importable, and how to get it.
PEERS = {
    "onesided_python": ("onesided", "pip install ."),
    "mooncake": ("mooncake", "pip install mooncake-transfer-engine-non-cuda"),
    "nixl": ("nixl_cu12", "pip install nixl-cu12"),
}
_WORKER = Path(__file__).with_name("peer_worker.py")
_TIMEOUT_S = 300


def measure_peer(name: str, shapes: list[tuple[int, int]], buffer_bytes: int) -> tuple[list[dict[str, Any]], str]:
    """Rows of one peer, or none and why."""
    module, how = PEERS[name]
    if importlib.util.find_spec(module) is None:
        return [], f"{module} is not installed ({how})"
    work = json.dumps({"peer": name, "shapes": shapes, "buffer": buffer_bytes})
    try:
        ended = subprocess.run(
            [sys.executable, str(_WORKER), "reader", work],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [], f"no end after {_TIMEOUT_S} s"
    rows = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"peer"')]
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
        return rows, f"its reader ended with {ended.returncode}: {said[-1] if said else 'silently'}"
    return rows, ""
