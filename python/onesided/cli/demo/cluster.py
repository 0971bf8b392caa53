"""The demo's Ray cluster is its own, small, and gone when the demo is: also after Ctrl-C, also where Ray leaves
something behind."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from onesided.cli import preflight

_MARK = "ONESIDED_DEMO_RUN"
_GRACE_SECONDS = 5.0


class AlreadyRunning(Exception):
    """A demo of this user runs already."""


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Holds the right to run the demo: one of a user at a time. The kernel takes it back, however the process ends."""
    with socket.socket(socket.AF_UNIX) as right:
        try:
            right.bind(f"\0onesided-demo-{os.getuid()}")
        except OSError as error:
            raise AlreadyRunning(
                "another demo of yours is running; wait for it or end it (two would measure each other)."
            ) from error
        yield


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Marks every process started inside, by a variable they all inherit, and ends what is left of them."""
    mark = uuid.uuid4().hex
    os.environ[_MARK] = mark
    try:
        yield
    finally:
        del os.environ[_MARK]
        deadline = time.monotonic() + _GRACE_SECONDS
        while (left := _descendants(mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _descendants(mark: str) -> list[int]:
    word = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # A zombie's environment is empty: only living processes are listed.
            if int(folder.name) != os.getpid() and word in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray cluster of this process: no dashboard, no reports home, its files in a folder that goes with it."""
    import ray

    files = tempfile.mkdtemp(prefix="onesided-demo-")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    try:
        ray.init(
            address="local", num_cpus=2, object_store_memory=preflight.OBJECT_STORE_BYTES, include_dashboard=False,
            log_to_driver=False, logging_level=logging.ERROR, _temp_dir=files,
        )  # fmt: skip
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(files, ignore_errors=True)
