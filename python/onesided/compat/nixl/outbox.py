"""Notifications on their way to one agent: each is sent once, in order, after the transfer that it follows."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

from onesided.compat.opening import log
from onesided.engine import Engine, EngineError, Request, Status, TransferStatus

_FULL_QUEUE_RETRY_S = 0.01
_SEND_TIMEOUT_MS = 30_000


@dataclass
class Notice:
    """One notification. `done` is set once it has been handed over, refused, or its transfer has failed."""

    name: str
    message: bytes
    after: Request | None = None
    done: threading.Event = field(default_factory=threading.Event)
    error: EngineError | None = None


class Outbox:
    """Sends to one peer from a thread of its own, which runs while there is something to send. Thread-safe."""

    def __init__(self, engine: Engine, peer: str) -> None:
        self._engine = engine
        self._peer = peer
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, notice: Notice) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"nixl-notify-{self._peer}", daemon=True)
                self._thread.start()
            self._waiting.put(notice)

    def close(self, timeout_s: float) -> None:
        """Sends what waits, for at most this long, and ends the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._waiting.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            try:
                self._send(notice)
            finally:
                notice.done.set()

    def _send(self, notice: Notice) -> None:
        if notice.after is not None and notice.after.wait() != TransferStatus.COMPLETED:
            return  # nothing has arrived: the peer must not be told
        deadline = time.monotonic() + _SEND_TIMEOUT_MS / 1000
        while True:
            try:
                return self._engine.send_notify(self._peer, notice.name, notice.message, _SEND_TIMEOUT_MS)
            except EngineError as error:
                # A full queue took nothing, so it may be sent again; any other error leaves open what arrived.
                if error.status == Status.NOTIFY_FAILED and time.monotonic() < deadline:
                    time.sleep(_FULL_QUEUE_RETRY_S)
                    continue
                notice.error = error
                log.error("nixl: notification of %d bytes to %s: %s", len(notice.message), self._peer, error)
                return
