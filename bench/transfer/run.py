"""READs between two processes: the engine, what the machine can do at best, and other engines, in one run.

The C++ program measures the engine beside raw copies, raw process_vm_readv and a raw socket, in turns. Python's own path
and installed peers (Mooncake, NIXL) follow on the same shapes. A table, a JSON file, and a picture where matplotlib is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .peers import PEERS, measure_peer
from .picture import draw

ROOT = Path(__file__).resolve().parents[2]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SHAPES = [
    (4 * KIB, 1),
    (64 * KIB, 1),
    (MIB, 1),
    (16 * MIB, 1),
    (256 * MIB, 1),
    (GIB, 1),
    (64 * KIB, 64),
    (64 * KIB, 1024),
]

Row = dict[str, Any]


def _program() -> Path:
    built = sorted(ROOT.glob("build/*/bench/transfer/transfer_bench"), key=lambda path: path.stat().st_mtime)
    release = ROOT / "build/release/bench/transfer/transfer_bench"
    if release in built:
        return release
    if built:
        return built[-1]
    raise SystemExit("transfer_bench is not built; ./do bench transfer builds it")


def _measure_core(buffer_bytes: int) -> Iterator[Row]:
    command = [str(_program()), "--buffer-mib", str(buffer_bytes // MIB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        raise SystemExit(f"transfer_bench ended with {process.returncode}")


def _best_raw_copies(rows: list[Row]) -> list[Row]:
    """Of the ways to copy, the fastest of each shape is the ceiling."""
    kept = [row for row in rows if not row["peer"].startswith("raw_copy_")]
    for size, count in SHAPES:
        ways = [r for r in rows if r["peer"].startswith("raw_copy_") and (r["size"], r["count"]) == (size, count)]
        if ways:
            best = min(ways, key=lambda row: row["median_us"])
            kept.append({**best, "peer": "raw_copy", "way": best["peer"].removeprefix("raw_copy_")})
    return kept


def _line(row: Row, ceilings: dict[tuple[str, int, int], Row]) -> str:
    ceiling = ceilings.get((row["transport"], row["size"], row["count"]))
    ratio = (
        f"{ceiling['median_us'] / row['median_us']:6.2f} {ceiling['best_us'] / row['best_us']:6.2f}" if ceiling else ""
    )
    return (
        f"{row['size']:>11,} x {row['count']:<6}{row['transport']:<6}{row['peer']:<16}{row['median_us']:>12.2f}"
        f"{row['best_us']:>12.2f}{row['p99_us']:>12.1f}{row['median_gbps']:>9.2f}{row['best_gbps']:>8.2f}  {ratio:<14}"
        f"{row['reader_cores']:>5.2f}{row['owner_cores']:>6.2f}  {'' if row['verified'] else 'WRONG BYTES'}"
    )


def _print_table(rows: list[Row], extras: list[Row]) -> None:
    ceilings = {(r["transport"], r["size"], r["count"]): r for r in rows if r["peer"].startswith("raw_")}
    print(
        f"{'bytes':>11} x {'items':<6}{'over':<6}{'who':<16}{'median us':>12}{'best us':>12}{'p99 us':>12}{'GB/s':>9}{'best':>8}"
        f"  {'of ceiling':<14}cores here/there"
    )
    for row in sorted(rows, key=lambda r: (r["count"], r["size"], r["transport"], r["peer"])):
        print(_line(row, ceilings))
    for extra in extras:
        print(f"{extra['extra']:<36} median {extra['median']:.4f}  best {extra['best']:.4f}")


def main(json_path: str | None = None, buffer_bytes: int = GIB) -> int:
    """Measures, prints, writes `json_path` (and a picture beside it); 1 when bytes were wrong."""
    rows: list[Row] = []
    extras: list[Row] = []
    for found in _measure_core(buffer_bytes):
        (extras if "extra" in found else rows).append(found)
        print(f"\r{len(rows)} rows", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = _best_raw_copies(rows)
    shapes = [(size, count) for size, count in SHAPES if size * count <= buffer_bytes]
    for name in PEERS:
        measured, why_not = measure_peer(name, shapes, buffer_bytes)
        rows += measured
        if why_not:
            print(f"{name}: not measured, {why_not}")
    _print_table(rows, extras)
    if json_path:
        Path(json_path).write_text(json.dumps([*rows, *extras], indent=1) + "\n")
        print(f"written: {json_path}")
        picture = draw(rows, Path(json_path).with_suffix(".png"))
        print(f"written: {picture}" if picture else "no picture: matplotlib is not installed")
    return 0 if all(row["verified"] for row in rows) else 1
