"""The picture of a run: bandwidth and latency over size, items over batch, each against its ceiling."""

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

    figure, (bandwidth, latency, batch) = pyplot.subplots(1, 3, figsize=(18, 5.5))
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        series.setdefault((row["transport"], row["peer"]), []).append(row)
    for (transport, peer), found in sorted(series.items()):
        style = "--" if peer.startswith("raw_") else "-"
        single = sorted((r for r in found if r["count"] == 1), key=lambda r: r["size"])
        label = f"{peer} ({transport})"
        bandwidth.plot([r["size"] for r in single], [r["median_gbps"] for r in single], style, marker=".", label=label)
        latency.plot([r["size"] for r in single], [r["median_us"] for r in single], style, marker=".", label=label)
        many = sorted((r for r in found if r["count"] > 1), key=lambda r: r["count"])
        batch.plot(
            [r["count"] for r in many],
            [r["count"] / r["median_us"] * 1e3 for r in many],
            style,
            marker=".",
            label=label,
        )
    for axes, title, unit in (
        (bandwidth, "Bandwidth of one READ", "GB/s, median"), (latency, "Latency of one READ", "us, median"),
        (batch, "Batches of 64 KiB items", "thousand items/s"),
    ):  # fmt: skip
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("items" if axes is batch else "bytes")
        axes.grid(alpha=0.3)
    latency.set_yscale("log")
    bandwidth.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
