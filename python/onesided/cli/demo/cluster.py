"""The demo's own small Ray cluster, which ends with the demo, also after Ctrl-C and also if Ray leaves processes
behind."""

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
    """Ensures that a user runs one demo at a time, with a lock that the kernel releases when the process ends."""
    with socket.socket(socket.AF_UNIX) as right:
        try:
            right.bind(f"\0onesided-demo-{os.getuid()}")
        except OSError as error:
            raise AlreadyRunning(
                "another demo of this user is running; wait for it or end it (two at a time would disturb the measurement)."
            ) from error
        yield


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Marks every process started inside by an inherited variable, and ends those that are left."""
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
            # A zombie's environment is empty, so only running processes are listed.
            if int(folder.name) != os.getpid() and word in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def local_ray() -> Iterator[None]:
    """A Ray cluster of this process: no dashboard, no usage reports, its files in a folder that is removed with it."""
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
