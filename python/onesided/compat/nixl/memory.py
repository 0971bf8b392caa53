"""What an agent has registered, and what another agent told of its own memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from onesided.compat.nixl.codes import (
    nixl_mem_t,
    nixlNotFoundError,
    nixlNotSupportedError,
    of_engine,
    refusal,
)
from onesided.compat.nixl.coverage import Coverage, Range, missing
from onesided.compat.nixl.lists import nixlRegDList
from onesided.engine import Engine, EngineError, MemHandle, RemoteRegions

_KINDS = {nixl_mem_t.DRAM_SEG: "host", nixl_mem_t.VRAM_SEG: "device"}
# How long a deregistration waits for transfers of others that still use the memory.
_DRAIN_MS = 10_000


@dataclass
class _Piece:
    handle: MemHandle
    users: int


@dataclass
class _Kind:
    """Registered memory of one kind."""

    pieces: dict[Range, _Piece] = field(default_factory=dict)
    # Registrations by (address, bytes, device number), with the pieces that each of them holds.
    held: dict[tuple[int, int, int], list[list[Range]]] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=lambda: Coverage([]))


class LocalMemory:
    """Registrations of one agent, which may repeat and overlap. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._kinds = {kind: _Kind() for kind in _KINDS}

    def add(self, descs: nixlRegDList) -> None:
        """All of the list or none of it."""
        kind = self._kind(descs.getType())
        done: list[tuple[int, int, int]] = []
        with self._lock:
            try:
                for row in descs.rows().tolist():
                    self._add(kind, _KINDS[descs.getType()], *row)
                    done.append(tuple(row))
            except EngineError as error:
                for key in done:
                    self._remove(kind, key)
                raise of_engine(error, "registerMem") from None
            finally:
                kind.coverage = Coverage(list(kind.pieces))

    def remove(self, descs: nixlRegDList) -> None:
        """nixlNotFoundError: one of them is not registered; none is removed then."""
        kind = self._kind(descs.getType())
        with self._lock:
            keys = [tuple(row) for row in descs.rows().tolist()]
            for key in set(keys):
                if len(kind.held.get(key, ())) < keys.count(key):
                    raise refusal(
                        nixlNotFoundError, f"deregisterMem: {key[0]:#x} + {key[1]} on {key[2]} is not registered"
                    )
            try:
                for key in keys:
                    self._remove(kind, key)
            except EngineError as error:
                raise of_engine(error, "deregisterMem") from None
            finally:
                kind.coverage = Coverage(list(kind.pieces))

    def coverage(self, kind: nixl_mem_t) -> Coverage:
        """The registered pieces of this kind, as they are now."""
        return self._kind(kind).coverage

    def describe(self, only: nixlRegDList | None = None) -> tuple[tuple[int, bytes], ...]:
        """By kind, the description of all pieces, or of those that hold `only`."""
        described: list[tuple[int, bytes]] = []
        with self._lock:
            for number, kind in self._kinds.items():
                pieces = sorted(kind.pieces)
                if only is not None:
                    keys = [tuple(row) for row in only.rows().tolist()] if only.getType() == number else []
                    if unknown := [key for key in keys if key not in kind.held]:
                        raise refusal(nixlNotFoundError, f"{unknown[0][0]:#x} + {unknown[0][1]} is not registered")
                    pieces = sorted({piece for key in keys for piece in kind.held[key][0]})
                if pieces:
                    try:
                        described.append((int(number), self._engine.describe(pieces)))
                    except EngineError as error:
                        raise of_engine(error, "getLocalMD") from None
        return tuple(described)

    def _kind(self, kind: nixl_mem_t) -> _Kind:
        if kind not in self._kinds:
            raise refusal(nixlNotFoundError, f"{kind.name}: only DRAM_SEG and VRAM_SEG memory can be registered")
        return self._kinds[kind]

    def _add(self, kind: _Kind, name: str, address: int, nbytes: int, device: int) -> None:
        pieces: list[Range] = []
        if nbytes:
            old = [p for p in kind.pieces if p[0] < address + nbytes and address < p[0] + p[1]]
            fresh = missing(old, address, nbytes)
            for at, piece in enumerate(fresh):
                try:
                    kind.pieces[piece] = _Piece(self._engine.register_mem(*piece, name), 0)
                except EngineError:
                    for back in fresh[:at]:
                        self._engine.deregister_mem(kind.pieces.pop(back).handle, _DRAIN_MS)
                    raise
            pieces = old + fresh
        for piece in pieces:
            kind.pieces[piece].users += 1
        kind.held.setdefault((address, nbytes, device), []).append(pieces)

    def _remove(self, kind: _Kind, key: tuple[int, ...]) -> None:
        registrations = kind.held[key]  # type: ignore[index]
        for piece in registrations.pop():
            known = kind.pieces[piece]
            known.users -= 1
            if known.users == 0:
                del kind.pieces[piece]
                self._engine.deregister_mem(known.handle, _DRAIN_MS)
        if not registrations:
            del kind.held[key]  # type: ignore[arg-type]


class RemoteMemory:
    """What another agent has told of one kind of its memory. A value."""

    def __init__(self, regions: RemoteRegions) -> None:
        self.regions = regions
        self.coverage = Coverage([regions[i] for i in range(len(regions))])

    @staticmethod
    def decode(engine: Engine, blob: bytes) -> RemoteMemory:
        try:
            return RemoteMemory(engine.import_desc(blob))
        except EngineError as error:
            raise of_engine(error, "loadRemoteMD") from None


def check_held(coverage: Coverage, rows: np.ndarray, what: str) -> None:
    """nixlNotFoundError: a range of positive length that is not registered."""
    rows = rows[rows[:, 1] > 0]
    held = coverage.holds(rows[:, 0], rows[:, 1])
    if not held.all():
        first = int(np.flatnonzero(~held)[0])
        raise refusal(
            nixlNotFoundError,
            f"{what} range {first} of {len(rows)}: {int(rows[first, 0]):#x} + {int(rows[first, 1])} bytes is not registered",
        )


def known_kind(kind: nixl_mem_t) -> str:
    """The engine's name of this kind of memory. nixlNotSupportedError: files, blocks, objects."""
    if kind not in _KINDS:
        raise refusal(nixlNotSupportedError, f"{kind.name}: only DRAM_SEG and VRAM_SEG memory moves")
    return _KINDS[kind]
