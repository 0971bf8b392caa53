"""Aligned pools beside what people do today: bytes for real KV caches, speed of malloc and free, fragmentation over time.

Each measurement runs in a process of its own on the simulated runtime with the real torch_npu wheel. Bytes are exact and
do not depend on the machine; times are ratios within one run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onesided

from .picture import draw

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


def measure(what: str, *arguments: str) -> list[Row]:
    """The rows that `python -m bench.alloc.measure WHAT ...` prints."""
    paths = [str(ROOT), str(Path(onesided.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "ONESIDED_SIM_MACHINE": f"bench-{os.getpid()}",
    }
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "bench.alloc.measure", what, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if child.returncode != 0:
        raise SystemExit(f"bench alloc: measuring {what} failed:\n{child.stderr[-3000:]}")
    return json.loads(child.stdout.strip().splitlines()[-1])


def table(rows: list[Row]) -> None:
    """Prints what was measured."""
    print(
        f"{'KV cache':16} {'blocks':>6} {'tensors':>7} {'way':>12} {'reserved GiB':>13} {'over charged':>13} {'misaligned':>10}"
    )
    for row in rows:
        if row["bench"] == "kv_cache":
            over = row["reserved_bytes"] / row["charged_bytes"] - 1
            print(
                f"{row['model']:16} {row['blocks']:6} {row['tensors']:7} {row['way']:>12} "
                f"{row['reserved_bytes'] / (1 << 30):13.3f} {over:12.2%} {row['misaligned']:10}"
            )
    print()
    for row in rows:
        if row["bench"] == "pairs":
            print(
                f"malloc + free, {row['threads']} thread(s), {row['sizes']:>7}: {row['who']:>16} median {row['median_ns']:7.0f} ns, "
                f"best {row['best_ns']:7.0f} ns"
            )
    print()
    for row in rows:
        if row["bench"] == "decorator_idle":
            print(
                f"{row['what']:>14} without an aligned pool, {row['rounds']} pairs of runs: bare {row['bare_ns']:.0f} ns, decorated "
                f"{row['decorated_ns']:.0f} ns, ratio {row['median_ratio']:.4f} ({row['ratio_low']:.4f} .. {row['ratio_high']:.4f})"
            )


def main(json_path: str | None = None) -> int:
    """Bytes reserved for KV caches, nanoseconds for malloc and free, fragmentation of a serving mix."""
    rows = measure("kv_cache")
    rows += measure("pairs")
    rows += measure("decorator_idle")
    for way in ("aligned_pool", "default"):
        rows += measure("serving", way)
    table(rows)
    if json_path:
        Path(json_path).write_text(json.dumps(rows, indent=1) + "\n")
        draw(rows, Path(json_path).with_suffix(".png"))
    return 0
