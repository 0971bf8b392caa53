"""Two ./do at once must not build into each other. Who runs holds the lock shared, who sets up holds it alone.

The kernel drops a lock with its holder, however that one ends: there is nothing stale to clean.
"""

from __future__ import annotations

import fcntl
import os

from .paths import LOCK
from .problem import Problem


class CheckoutLock:
    """The lock of this checkout. Confined to one thread; a context manager that starts out shared."""

    def __init__(self) -> None:
        self._fd = -1

    def __enter__(self) -> CheckoutLock:
        self._fd = self._open()
        self.share()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def share(self) -> None:
        """A shared lock: other commands may run, none may set up. Waits for a running set-up."""
        self._take(fcntl.LOCK_SH, "another ./do is setting up this checkout; waiting for it")

    def exclude(self) -> None:
        """An exclusive lock: no other command runs or sets up. State read under the shared lock may have changed and
        must be read again."""
        self._take(fcntl.LOCK_EX, "another ./do is at work in this checkout; waiting for it before setting up")

    def _take(self, kind: int, message: str) -> None:
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"do: {message}", flush=True)
                fcntl.flock(self._fd, kind)
            if self._is_the_file():
                return
            os.close(self._fd)  # ./do clean deleted the file during the wait, so this lock excludes no other process
            self._fd = self._open()

    @staticmethod
    def _open() -> int:
        try:
            return os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except PermissionError as error:
            raise Problem(
                f"{LOCK.parent} belongs to another user; ./do works inside its checkout: clone your own."
            ) from error

    def _is_the_file(self) -> bool:
        try:
            return os.stat(LOCK).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False
