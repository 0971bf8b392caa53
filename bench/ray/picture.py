"""The picture of a run: how fast and how late an object arrives, over its size, for each way to send it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], path: Path) -> Path | None:
    """Writes a PNG; nothing where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (bandwidth, latency) = pyplot.subplots(1, 2, figsize=(14, 5.5))
    for peer in sorted({row["peer"] for row in rows}):
        single = sorted(
            (row for row in rows if row["peer"] == peer and row["count"] == 1 and row["consumers"] == 1),
            key=lambda row: row["size"],
        )
        style = "--" if peer in ("raw_copy", "nothing") else "-"
        sizes = [row["size"] for row in single]
        if peer != "nothing":
            bandwidth.plot(sizes, [row["median_gbps"] for row in single], style, marker=".", label=peer)
        latency.plot(sizes, [row["median_ms"] for row in single], style, marker=".", label=peer)
    for axes, title, unit in (
        (bandwidth, "One tensor, actor to actor", "GB/s, median"), (latency, "Time until it was looked at", "ms, median"),
    ):  # fmt: skip
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.set_xlabel("bytes")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
