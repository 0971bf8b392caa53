"""What vLLM's weight transfer backends for 0.18 and 0.34 share: how a trainer and its workers find each other.

vLLM hands one dictionary to every worker and brings nothing back. So the workers connect to the trainer's engine and say
hello; the trainer waits for as many as there are.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable

import torch

from onesided.engine import Engine
from onesided.weight_windows import Pulse, WeightStreamError, WindowReader, WindowSender

_HELLO = "onesided.weights.hello"


class TrainerStream:
    """The trainer's end. Confined to one thread."""

    def __init__(self, address: str, readers: int, options: dict[str, str] | None = None) -> None:
        if readers < 1:
            raise WeightStreamError(f"readers is {readers}; it is the number of inference workers, at least 1.")
        self.engine = Engine(f"{address}:0", options or {})
        self._expected = readers
        self._readers: dict[str, bytes] = {}

    def wait_for_readers(self, timeout_s: float) -> None:
        """Blocks until every worker has said hello. WeightStreamError: how many have not."""
        limit = time.monotonic() + timeout_s
        while len(self._readers) < self._expected:
            for name, message in self.engine.get_notifies():
                if name == _HELLO:
                    given = json.loads(message)
                    self._readers[given["reader"]] = bytes.fromhex(given["pulse"])
            if time.monotonic() > limit:
                raise WeightStreamError(
                    f"{len(self._readers)} of {self._expected} workers connected to {self.engine.id} within {timeout_s} s"
                )
            time.sleep(0.001)
        for reader in self._readers:
            self.engine.connect(reader, 5000)

    def send(self, weights: Iterable[tuple[str, torch.Tensor]], window_bytes: int, version: int) -> int:
        """Sends all weights to all workers; returns the bytes. WeightStreamError."""
        return asyncio.run(WindowSender(self.engine, self._readers, window_bytes, version).send(weights))

    def close(self) -> None:
        self.engine.close()


class WorkerStream:
    """A worker's end. Confined to one thread."""

    def __init__(self, source: str, address: str, device: str, options: dict[str, str] | None = None) -> None:
        self._source = source
        self._device = device
        self._engine = Engine(f"{address}:0", options or {})
        self._pulse = Pulse(self._engine)
        self._engine.connect(source, 5000)
        hello = {"reader": self._engine.id, "pulse": self._pulse.described.hex()}
        self._engine.send_notify(source, _HELLO, json.dumps(hello).encode(), 5000)

    def receive(self, version: int, load: Callable[[list[tuple[str, torch.Tensor]]], object], timeout_s: float) -> None:
        """Calls `load` with one tensor at a time, which is valid during the call. WeightStreamError."""

        async def run() -> None:
            reader = WindowReader(
                self._engine, self._source, self._pulse, version=version, device=self._device, timeout_s=timeout_s
            )
            async for name, tensor in reader.receive():
                load([(name, tensor)])

        asyncio.run(run())

    def close(self) -> None:
        self._engine.close()
