"""Prefill's promises, in memory that readers can see: slot i holds the nonce of the request whose blocks are kept.

A reader looks before and after it reads the blocks. The slot is cleared before the blocks may be used again, so blocks
between two looks at the same nonce are the request's own, whatever its reference went through before.
"""

from __future__ import annotations

import json
import time

from onesided.engine import Engine
from onesided.host_memory import host_pool
from onesided.vllm.messages import NONCE_BYTES, Promise


class Ledger:
    """One prefill worker's promises, with the readers that have reported. Confined to the worker's thread."""

    def __init__(self, engine: Engine, slots: int) -> None:
        self._memory = host_pool(slots * NONCE_BYTES)
        self._cells = self._memory.numpy().reshape(-1)
        self.address, self.nbytes = self._memory.addr, slots * NONCE_BYTES
        self._engine = engine
        self._handle = engine.register_mem(self.address, self.nbytes)
        self._promises: dict[str, Promise] = {}
        self._owner: dict[bytes, str] = {}
        self._reported: dict[bytes, set[int]] = {}
        self._expected: dict[bytes, int] = {}
        self._deadlines: dict[str, float] = {}

    def promise(self, request_id: str, promise: Promise) -> None:
        """The request's blocks will be kept."""
        self._set(promise.slot, promise.nonce)
        self._promises[request_id] = promise
        self._owner[promise.nonce] = request_id

    def withdraw(self, request_id: str) -> None:
        """Its blocks may be used again when this has returned."""
        promise = self._promises.pop(request_id, None)
        if promise is None:
            return
        self._set(promise.slot, bytes(NONCE_BYTES))
        self._owner.pop(promise.nonce, None)
        self._reported.pop(promise.nonce, None)
        self._expected.pop(promise.nonce, None)
        self._deadlines.pop(request_id, None)

    def offer(self, request_id: str, lease_s: float) -> None:
        """The request has finished; its readers have this long."""
        if request_id in self._promises:
            self._deadlines[request_id] = time.monotonic() + lease_s

    def report(self, nonce: bytes, reader: int, readers: int) -> bool:
        """One reader is done. False: no such promise (any more)."""
        if nonce not in self._owner:
            return False
        self._reported.setdefault(nonce, set()).add(reader)
        self._expected[nonce] = readers
        return True

    def take_ended(self) -> tuple[set[str], set[str]]:
        """(requests that all readers are done with, requests whose lease is over): withdrawn when this returns."""
        now = time.monotonic()
        read: set[str] = set()
        expired: set[str] = set()
        for request_id, deadline in self._deadlines.items():
            nonce = self._promises[request_id].nonce
            if nonce in self._expected and len(self._reported[nonce]) >= self._expected[nonce]:
                read.add(request_id)
            elif now >= deadline:
                expired.add(request_id)
        for request_id in read | expired:
            self.withdraw(request_id)
        return read, expired

    def counts(self) -> dict[str, int]:
        """All zero when nothing is promised."""
        return {"promised": len(self._promises), "offered": len(self._deadlines), "reported": len(self._reported)}

    def close(self) -> None:
        """Ends the registration. The engine must still be open."""
        self._engine.deregister_mem(self._handle)

    def _set(self, slot: int, nonce: bytes) -> None:
        at = slot * NONCE_BYTES
        self._cells[at : at + NONCE_BYTES] = memoryview(nonce)


def encode_card(layout: dict[str, object], rows: bytes) -> bytes:
    """A worker's card: its layout, and the description of all its rows with the ledger as the last item."""
    return json.dumps({"layout": layout, "rows": rows.hex()}).encode()
