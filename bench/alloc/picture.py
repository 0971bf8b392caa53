"""The serving mix as a picture: reserved and allocated bytes over time. Where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Writes the picture, or says why there is none."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    series = [row for row in rows if row["bench"] == "serving"]
    figure, axes = pyplot.subplots(1, len(series), figsize=(5 * len(series), 3.5), sharey=True, squeeze=False)
    for axis, row in zip(axes[0], series, strict=True):
        axis.plot([value / (1 << 30) for value in row["reserved_bytes"]], label="reserved")
        axis.plot([value / (1 << 30) for value in row["requested_bytes"]], label="requested")
        axis.set_title(row["way"])
        axis.set_xlabel("step")
        axis.set_ylabel("GiB")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")
