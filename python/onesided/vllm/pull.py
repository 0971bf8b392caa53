"""One request's load on one decode worker: which ranges come from where, the READs layer by layer, the two looks."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onesided.engine import Engine, EngineError, RemoteRegions, Request, Status, TransferStatus
from onesided.host_memory import host_pool
from onesided.vllm.layout import CacheLayout, Piece, check_comparable, pieces_of
from onesided.vllm.messages import NONCE_BYTES, WorkerCard
from onesided.vllm.options import ConnectorOptions, UnsupportedError

logger = logging.getLogger("onesided.vllm")


class LoadFailedError(Exception):
    """A load that cannot be completed; the text is its cause."""


class LoadCancelledError(Exception):
    """The request was aborted while it loaded."""


@dataclass(frozen=True)
class RemoteCache:
    """A prefill worker's cache as this worker reads it. A value."""

    card: WorkerCard
    regions: RemoteRegions  # the rows of all layers in order, the ledger last
    layout: CacheLayout
    pieces: tuple[tuple[Piece, ...], ...]  # by layer
    first_row: tuple[int, ...]  # by layer: the index of its first row in `regions`


class RemoteCaches:
    """The prefill workers that this worker has read from. Thread-safe."""

    def __init__(self, engine: Engine, own: CacheLayout, options: ConnectorOptions) -> None:
        self._engine = engine
        self._own = own
        self._options = options
        self._mutex = threading.Lock()
        self._caches: dict[str, RemoteCache] = {}
        self._opening: dict[str, threading.Lock] = {}

    def get(self, card: WorkerCard) -> RemoteCache:
        """Connects and reads the card the first time. LoadFailedError, EngineError, UnsupportedError."""
        with self._mutex:
            opening = self._opening.setdefault(card.engine_id, threading.Lock())
        with opening:  # one connect a peer, however many requests want it
            with self._mutex:
                known = self._caches.get(card.engine_id)
            if known is not None and known.card == card:
                return known
            if known is not None:  # the same address, another instance: it was restarted
                self.drop(known)
            try:
                self._engine.connect(card.engine_id, self._options.connect_timeout_ms)
            except EngineError as error:
                if error.status != Status.ALREADY_CONNECTED:
                    raise
            opened = self._open(card)
            with self._mutex:
                self._caches[card.engine_id] = opened
            return opened

    def drop(self, cache: RemoteCache) -> None:
        """Forgets a peer that failed: the next load connects anew."""
        self.drop_id(cache.card.engine_id)

    def drop_id(self, engine_id: str) -> None:
        """As drop(), for a peer that could not even be opened."""
        with self._mutex:
            self._caches.pop(engine_id, None)
        try:
            self._engine.disconnect(engine_id)
        except EngineError as error:
            if error.status not in (Status.NOT_CONNECTED, Status.PEER_LOST):
                logger.warning("disconnect from %s: %s", engine_id, error)

    def _open(self, card: WorkerCard) -> RemoteCache:
        located = self._engine.import_desc(card.card)
        if located.engine_id != card.engine_id or len(located) != 1:
            raise LoadFailedError(f"the card of {card.engine_id} is described as {located.engine_id}'s; it is refused")
        memory = host_pool(card.nbytes)
        handle = self._engine.register_mem(memory.addr, card.nbytes)
        try:
            self._engine.transfer_sync(
                card.engine_id,
                "READ",
                located.pairs([(memory.addr, 0, 0, card.nbytes)]),
                self._options.connect_timeout_ms,
            )
            try:
                given = json.loads(bytes(memory.memoryview()[: card.nbytes]))
                layout = CacheLayout.from_dict(given["layout"])
                regions = self._engine.import_desc(bytes.fromhex(given["rows"]))
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, UnsupportedError):
                    raise
                raise LoadFailedError(f"the card of {card.engine_id} is damaged: {error}") from error
        finally:
            self._engine.deregister_mem(handle)
        return self._checked(card, layout, regions)

    def _checked(self, card: WorkerCard, layout: CacheLayout, regions: RemoteRegions) -> RemoteCache:
        check_comparable(self._own, layout)
        pieces = tuple(tuple(pieces_of(self._own, layout, at)) for at in range(len(layout.layers)))
        first: list[int] = []
        total = 0
        for layer in layout.layers:
            first.append(total)
            total += len(layer.rows)
        if len(regions) != total + 1:
            raise LoadFailedError(f"the card of {card.engine_id} describes {len(regions)} ranges for {total} rows")
        return RemoteCache(card, regions, layout, pieces, tuple(first))


@dataclass(frozen=True)
class BlockRuns:
    """Blocks in ranges that are consecutive on both sides. A value."""

    local: tuple[int, ...]
    remote: tuple[int, ...]
    length: tuple[int, ...]

    @classmethod
    def of(cls, local: Sequence[int], remote: Sequence[int], merge: bool) -> BlockRuns:
        """`merge` False: one block a run."""
        mine, theirs = np.asarray(local, np.int64), np.asarray(remote, np.int64)
        if not merge or len(mine) == 0:
            return cls(tuple(mine.tolist()), tuple(theirs.tolist()), (1,) * len(mine))
        breaks = np.flatnonzero((np.diff(mine) != 1) | (np.diff(theirs) != 1)) + 1
        starts = np.concatenate(([0], breaks))
        lengths = np.diff(np.append(starts, len(mine)))
        return cls(tuple(mine[starts].tolist()), tuple(theirs[starts].tolist()), tuple(lengths.tolist()))


class Pull:
    """The READs of one request from one prefill worker. Confined to one thread, but for cancel()."""

    def __init__(
        self, engine: Engine, own: CacheLayout, cache: RemoteCache, local: Sequence[int], remote: Sequence[int]
    ) -> None:
        self._engine = engine
        self._own = own
        self._cache = cache
        self._check(local, remote)
        self._local, self._remote = local, remote
        self._runs: dict[bool, BlockRuns] = {}
        self._requests: list[Request | None] = []

    def _check(self, local: Sequence[int], remote: Sequence[int]) -> None:
        if len(local) != len(remote):
            raise LoadFailedError(f"{len(local)} blocks to fill, {len(remote)} blocks to read")
        for side, blocks, limit in (
            ("decode", local, self._own.num_blocks),
            ("prefill", remote, self._cache.layout.num_blocks),
        ):
            wrong = [block for block in blocks if not 0 <= block < limit]
            if wrong:
                raise LoadFailedError(f"block {wrong[0]} is out of range: the {side} side's cache has {limit} blocks")

    def submit(self, layer: int, timeout_ms: int) -> None:
        """Starts the READs of one layer. EngineError."""
        items: list[tuple[int, int, int, int]] = []
        mine, theirs = self._own.layers[layer], self._cache.layout.layers[layer]
        for row, (own_row, other_row) in enumerate(zip(mine.rows, theirs.rows, strict=True)):
            index = self._cache.first_row[layer] + row
            for piece in self._cache.pieces[layer]:
                whole = piece.nbytes == own_row.stride == other_row.stride
                if whole not in self._runs:
                    self._runs[whole] = BlockRuns.of(self._local, self._remote, whole)
                runs = self._runs[whole]
                items += [
                    (own_row.address + at * own_row.stride + piece.local, index,
                     other * other_row.stride + piece.remote, piece.nbytes * length)
                    for at, other, length in zip(runs.local, runs.remote, runs.length, strict=True)
                ]  # fmt: skip
        if not items:
            self._requests.append(None)
            return
        bound = self._cache.regions.pairs(items)
        self._requests.append(self._engine.transfer_async(self._cache.card.engine_id, "READ", bound, timeout_ms))

    def wait(self, layer: int) -> None:
        """Blocks until that layer is here. LoadFailedError with the engine's cause."""
        request = self._requests[layer]
        if request is not None and request.wait() != TransferStatus.COMPLETED:
            raise LoadFailedError(f"layer {self._own.layers[layer].name}: {request.error}")

    def cancel(self) -> None:
        """Ends what is under way; returns when nothing moves. Thread-safe."""
        for request in list(self._requests):
            if request is not None:
                request.cancel()


def read_slot(engine: Engine, cache: RemoteCache, slot: int, cell: int, timeout_ms: int) -> None:
    """Reads a slot of the ledger into `cell`, the address of NONCE_BYTES registered bytes. EngineError."""
    ledger = len(cache.regions) - 1
    items = cache.regions.pairs([(cell, ledger, slot * NONCE_BYTES, NONCE_BYTES)])
    engine.transfer_sync(cache.card.engine_id, "READ", items, timeout_ms)
