"""A stream of named tensors from one process to several, pulled by the readers window by window.

The source keeps the tensors of a window where they are, describes them, and tells its readers; every reader READs them and
reports, and the source releases them. Nothing is staged at the source, and every signal is a notification: no marker is
ever written into the memory of a tensor. Two windows are open at a time, so that one moves while the other is loaded.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from onesided.engine import Engine, EngineError, MemHandle, RemoteRegions, Request, TransferStatus
from onesided.host_memory import HostMemory, host_pool

_WINDOW = "onesided.weights.window"
_READ = "onesided.weights.read"
_OPEN_WINDOWS = 2
_POLL_S = 0.0005
_PROBE_S = 0.25  # a peer that says nothing is looked at this often


class WeightStreamError(RuntimeError):
    """A stream that cannot be completed; the text names the peer and the cause."""


@dataclass
class _Window:
    """A window that readers may still read. Confined to the sender's thread."""

    tensors: list[torch.Tensor]
    handles: list[MemHandle]
    header: HostMemory
    waiting: set[str] = field(default_factory=set)


class Pulse:
    """Eight registered bytes that a peer reads to know whether this process still runs. Confined to one thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory = host_pool(8)
        self._handle = engine.register_mem(self._memory.addr, 8)
        self.described = engine.describe([(self._memory.addr, 8)])

    def look(self, peer: str, described: bytes, timeout_ms: int = 1000) -> None:
        """Reads a peer's pulse. EngineError: it is gone."""
        items = self._engine.import_desc(described).pairs([(self._memory.addr, 0, 0, 8)])
        self._engine.transfer_sync(peer, "READ", items, timeout_ms)

    def close(self) -> None:
        self._engine.deregister_mem(self._handle)


def _kind(tensor: torch.Tensor) -> str:
    if tensor.device.type not in ("cpu", "npu"):
        raise WeightStreamError(f"a weight is on {tensor.device}; onesided moves cpu and npu memory.")
    return "device" if tensor.device.type == "npu" else "host"


class WindowSender:
    """The source of one stream. Confined to one thread.

    `readers`: engine id -> description of that reader's pulse. The engine must be able to connect to all of them.
    """

    def __init__(self, engine: Engine, readers: dict[str, bytes], window_bytes: int, version: int | None) -> None:
        self._engine = engine
        self._readers = readers
        self._window_bytes = window_bytes
        self._version = version
        self._open: dict[int, _Window] = {}
        self._next = 0
        self._pulse = Pulse(engine)
        self._looked = time.monotonic()

    async def send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> int:
        """Sends all tensors; returns the bytes when every reader has them. WeightStreamError: a reader is gone."""
        total = 0
        held: list[tuple[str, torch.Tensor]] = []
        held_bytes = 0
        try:
            for name, weight in weights:
                whole = weight.detach().contiguous()
                if held and held_bytes + whole.nbytes > self._window_bytes:
                    await self._offer(held, last=False)
                    held, held_bytes = [], 0
                held.append((name, whole))
                held_bytes += whole.nbytes
                total += whole.nbytes
            await self._offer(held, last=True)
            while self._open:
                await self._take_reports()
        finally:
            for window in list(self._open.values()):
                self._end(window)
            self._open.clear()
            self._pulse.close()
        return total

    async def _offer(self, weights: list[tuple[str, torch.Tensor]], last: bool) -> None:
        while len(self._open) >= _OPEN_WINDOWS:
            await self._take_reports()
        handles = [
            self._engine.register_mem(one.untyped_storage().data_ptr(), one.untyped_storage().nbytes(), _kind(one))
            for _, one in weights
            if one.nbytes
        ]
        ranges = [(one.data_ptr(), one.nbytes) for _, one in weights if one.nbytes]
        described = self._engine.describe(ranges) if ranges else b""
        content = json.dumps(
            {
                "version": self._version,
                "number": self._next,
                "last": last,
                "tensors": [[name, str(one.dtype).removeprefix("torch."), list(one.shape)] for name, one in weights],
                "described": described.hex(),
            }
        ).encode()
        header = host_pool(len(content))
        header.numpy()[: len(content)] = np.frombuffer(content, np.uint8)
        handles.append(self._engine.register_mem(header.addr, len(content)))
        window = _Window([one for _, one in weights], handles, header, set(self._readers))
        self._open[self._next] = window
        note = json.dumps(
            {
                "header": self._engine.describe([(header.addr, len(content))]).hex(),
                "nbytes": len(content),
                "pulse": self._pulse.described.hex(),
            }
        ).encode()
        for reader in self._readers:
            try:
                self._engine.send_notify(reader, _WINDOW, note, 5000)
            except EngineError as error:
                raise WeightStreamError(f"reader {reader} cannot be told of window {self._next}: {error}") from error
        self._next += 1

    async def _take_reports(self) -> None:
        notes = self._engine.get_notifies()
        for name, message in notes:
            given = json.loads(message) if name == _READ else {}
            if given.get("error"):
                raise WeightStreamError(f"reader {given['reader']} failed: {given['error']}")
            window = self._open.get(given.get("number", -1))
            if window is not None:
                window.waiting.discard(given["reader"])
                if not window.waiting:
                    self._end(self._open.pop(given["number"]))
        if not notes:
            self._look_at_readers()
            await asyncio.sleep(_POLL_S)

    def _look_at_readers(self) -> None:
        now = time.monotonic()
        if now - self._looked < _PROBE_S:
            return
        self._looked = now
        for reader in {reader for window in self._open.values() for reader in window.waiting}:
            try:
                self._pulse.look(reader, self._readers[reader])
            except EngineError as error:
                raise WeightStreamError(f"reader {reader} is gone: {error}") from error

    def _end(self, window: _Window) -> None:
        for handle in window.handles:
            self._engine.deregister_mem(handle)
        window.tensors.clear()


class WindowReader:
    """One reader of one stream. Confined to one thread."""

    def __init__(
        self,
        engine: Engine,
        source: str,
        pulse: Pulse,
        *,
        version: int | None,
        device: str = "cpu",
        timeout_s: float = 600.0,
    ) -> None:
        self._engine = engine
        self._source = source
        self._pulse = pulse
        self._version = version
        self._device = device
        self._timeout_s = timeout_s
        self._source_pulse = b""
        self._notes: list[dict[str, Any]] = []

    async def receive(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yields every tensor once; it is valid until the next one is asked for. WeightStreamError."""
        number = 0
        ahead: _Arriving | None = None
        try:
            while True:
                window = ahead or _Arriving(self, await self._next_note(number), number)
                ahead = None
                if not window.last:
                    note = self._take_note()
                    ahead = _Arriving(self, note, number + 1) if note is not None else None
                for name, tensor in await window.tensors():
                    yield name, tensor
                window.end()
                self._report(number)
                if window.last:
                    return
                number += 1
        except BaseException as error:
            if ahead is not None:
                ahead.end()
            self._report(number, f"{type(error).__name__}: {error}")
            raise

    def _take_note(self) -> dict[str, Any] | None:
        self._notes += [json.loads(message) for name, message in self._engine.get_notifies() if name == _WINDOW]
        return self._notes.pop(0) if self._notes else None

    async def _next_note(self, number: int) -> dict[str, Any]:
        limit = time.monotonic() + self._timeout_s
        looked = time.monotonic()
        while True:
            note = self._take_note()
            if note is not None:
                self._source_pulse = bytes.fromhex(note["pulse"])
                return note
            now = time.monotonic()
            if now > limit:
                raise WeightStreamError(f"no window {number} came from {self._source} within {self._timeout_s} s")
            if self._source_pulse and now - looked > _PROBE_S:
                looked = now
                try:
                    self._pulse.look(self._source, self._source_pulse)
                except EngineError as error:
                    raise WeightStreamError(f"the source {self._source} is gone: {error}") from error
            await asyncio.sleep(_POLL_S)

    def _report(self, number: int, error: str = "") -> None:
        note = json.dumps({"number": number, "reader": self._engine.id, "error": error}).encode()
        try:
            self._engine.send_notify(self._source, _READ, note, 5000)
        except EngineError as problem:
            if not error:
                raise WeightStreamError(
                    f"the source {self._source} cannot be told of window {number}: {problem}"
                ) from problem


class _Arriving:
    """A window under way to one reader. Confined to the reader's thread."""

    def __init__(self, reader: WindowReader, note: dict[str, Any], number: int) -> None:
        self._reader = reader
        self._engine = reader._engine
        header = self._read_header(bytes.fromhex(note["header"]), note["nbytes"])
        if header["number"] != number or header["version"] != reader._version:
            raise WeightStreamError(
                f"window {header['number']} of version {header['version']} came from {reader._source}; "
                f"window {number} of version {reader._version} was expected"
            )
        self.last: bool = header["last"]
        self._tensors = [(name, getattr(torch, dtype), tuple(shape)) for name, dtype, shape in header["tensors"]]
        self._handle: MemHandle | None = None
        self._request: Request | None = None
        self._start(self._engine.import_desc(bytes.fromhex(header["described"])) if header["described"] else None)

    def _read_header(self, described: bytes, nbytes: int) -> dict[str, Any]:
        memory = host_pool(nbytes)
        handle = self._engine.register_mem(memory.addr, nbytes)
        try:
            items = self._engine.import_desc(described).pairs([(memory.addr, 0, 0, nbytes)])
            self._engine.transfer_sync(self._reader._source, "READ", items, 5000)
            return dict(json.loads(bytes(memory.memoryview()[:nbytes])))
        except EngineError as error:
            raise WeightStreamError(f"a window of {self._reader._source} cannot be read: {error}") from error
        finally:
            self._engine.deregister_mem(handle)

    def _start(self, regions: RemoteRegions | None) -> None:
        sizes = [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for _, dtype, shape in self._tensors]
        self._offsets = np.concatenate(([0], np.cumsum([-(-size // 64) * 64 for size in sizes]))).astype(int).tolist()
        self._buffer = torch.empty(max(self._offsets[-1], 1), dtype=torch.uint8, device=self._reader._device)
        self._sizes = sizes
        if regions is None or not any(sizes):
            return
        address = self._buffer.data_ptr()
        self._handle = self._engine.register_mem(address, self._buffer.nbytes, _kind(self._buffer))
        filled = [at for at, size in enumerate(sizes) if size]
        items = [(address + self._offsets[at], index, 0, sizes[at]) for index, at in enumerate(filled)]
        self._request = self._engine.transfer_async(self._reader._source, "READ", regions.pairs(items), None)

    async def tensors(self) -> list[tuple[str, torch.Tensor]]:
        while self._request is not None and self._request.status() == TransferStatus.WAITING:
            await asyncio.sleep(_POLL_S)
        if self._request is not None and self._request.status() != TransferStatus.COMPLETED:
            raise WeightStreamError(f"the weights of {self._reader._source} were not read: {self._request.error}")
        return [
            (name, self._buffer[at : at + size].view(dtype).view(shape))
            for (name, dtype, shape), at, size in zip(self._tensors, self._offsets, self._sizes, strict=False)
        ]

    def end(self) -> None:
        if self._request is not None:
            self._request.cancel()
            self._request = None
        if self._handle is not None:
            self._engine.deregister_mem(self._handle)
            self._handle = None
