"""Runs the demo: three parts, the figures, and an exit code that reports the checks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from onesided.cli import machine, preflight
from onesided.cli.demo import cluster, model, weights
from onesided.cli.demo.alignment import Report
from onesided.cli.demo.figures import Figures
from onesided.cli.demo.screen import Screen


class Stopped(Exception):
    """The demo cannot continue; the text is the reason."""


def _alignment(figures: Figures) -> Report:
    """Runs parts 1 and 2 in a separate process; a crash there becomes an error message here."""
    with tempfile.TemporaryDirectory(prefix="onesided-demo-") as folder:
        path = Path(folder, "report.json")
        done = subprocess.run(
            [sys.executable, "-m", "onesided.cli.demo.alignment", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not path.exists():
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise Stopped(f"parts 1 and 2 ended with {done.returncode}: {last}")
        report = Report(**json.loads(path.read_text()))
    figures.misaligned_plain = report.misaligned_plain
    figures.misaligned_pool = report.misaligned_pool
    figures.error_plain = ": ".join(filter(None, (report.refusal["text"], report.refusal["driver_line"])))
    figures.reserved_pool_bytes = report.reserved_pool_bytes
    figures.charged_pool_bytes = report.charged_pool_bytes
    figures.reserved_workaround_bytes = report.reserved_workaround_bytes
    figures.device = f"{machine.runtime().kind} {report.device}"
    if not report.acceptance["connected"]:
        raise Stopped(f"the aligned pool's tensors were refused: {report.acceptance['text']}")
    return report


def _weights(figures: Figures, say: Callable[[str], None]) -> weights.Outcome:
    outcome = weights.run(say)
    rounds = outcome.one_sided + outcome.object_store
    figures.tensors, figures.bytes = outcome.tensors, model.total_bytes()
    figures.checksum_ok = all(one.checksum_ok for one in rounds)
    figures.hixl_gbps_first = round(outcome.one_sided[0].gbps, 3)
    figures.hixl_gbps_best = round(max(one.gbps for one in outcome.one_sided), 3)
    figures.object_store_gbps_best = round(max(one.gbps for one in outcome.object_store), 3)
    figures.registrations_after_first = sum(one.registrations for one in outcome.one_sided[1:])
    figures.misaligned_pool += outcome.misaligned
    return outcome


def _play(screen: Screen, figures: Figures) -> None:
    screen.act(
        1, "The problem",
        "Ascend registers memory for remote access in steps of 2 MiB. torch_npu's allocator allocates in steps of 512 bytes.",
    )  # fmt: skip
    with screen.working("torch_npu on a simulated NPU: plain tensors, an aligned pool, manual padding"):
        report = _alignment(figures)
    screen.problem(report)
    screen.act(
        2, "The solution",
        "The same allocations inside torch_npu.npu.MemPool(sub_block_alignment=2 MiB), on the unmodified wheel.",
    )  # fmt: skip
    screen.cure(report)
    screen.act(
        3, "Weights between two Ray actors",
        f"One Ray actor owns {model.NAME}'s weights on npu:0; another reads them onto npu:1. Ten updates, then Ray's "
        "object store.",
    )  # fmt: skip
    with screen.working("starting") as say:
        outcome = _weights(figures, say)
    screen.main_job(outcome, figures)


def _interruptible_once() -> None:
    """The first interrupt ends the demo; the following clean-up must not be interrupted."""

    def end(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end)


def run(json_path: Path | None) -> int:
    """Runs the demo. Returns 0 if every check holds, 1 if one fails or the demo cannot run, 130 after an interrupt."""
    obstacle = preflight.obstacle()
    if obstacle:
        print(f"demo: {obstacle}", file=sys.stderr)
        return 1
    if json_path is not None:
        try:
            json_path.touch()  # checked before the demo runs for half a minute
        except OSError as error:
            print(f"demo: the figures cannot be written to {json_path}: {error.strerror}", file=sys.stderr)
            return 1
    _interruptible_once()
    began = time.monotonic()
    screen, figures = Screen(), Figures()
    try:
        with cluster.only_one(), cluster.marked():
            import onesided.ascend_sim

            # The demo's own NPUs: other simulations on this machine do not use their memory.
            os.environ["ONESIDED_SIM_MACHINE"] = f"demo-{os.getpid()}"
            onesided.ascend_sim.enable()
            _play(screen, figures)
    except (cluster.AlreadyRunning, Stopped) as stop:
        print(f"demo: {stop}", file=sys.stderr)
        return 1
    except Exception as error:
        if os.environ.get("ONESIDED_DEBUG"):
            raise
        lines = str(error).strip().splitlines() or ["no further message"]
        print(
            f"demo: {type(error).__name__}: {lines[-1].strip()} (ONESIDED_DEBUG=1 shows the traceback)", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        print(
            "\ndemo: interrupted; its processes have ended, its files and shared memory are removed.", file=sys.stderr
        )
        return 130
    failed = figures.failed_checks()
    if json_path is not None:
        figures.write(json_path)
    screen.verdict(failed, time.monotonic() - began)
    return 1 if failed else 0
