"""NIXL's descriptor lists: (address, bytes, device number) each, of one kind of memory."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from onesided.compat.nixl.codes import nixl_mem_t, nixlMismatchError, nixlNotFoundError, refusal

_HEAD = struct.Struct("<4sBxxxQ")
# A serialized list from another process is checked against this limit before memory is allocated for it.
_ROW_BYTES = 24


def _row(values: Any, columns: int) -> tuple[Any, ...]:
    if not isinstance(values, (tuple, list)) or len(values) != columns:
        raise TypeError(f"a descriptor of this list is a tuple of {columns}, got {values!r}")
    return tuple(values)


def _as_rows(numbers: Any) -> np.ndarray:
    """N x 3 unsigned 64-bit integers. TypeError: something that is none of these."""
    try:
        rows = np.asarray(numbers)
        if rows.dtype != np.uint64:
            if rows.size and (rows.dtype.kind not in "iuO" or (rows < 0).any()):
                raise TypeError("addresses, lengths and device numbers are integers from 0 to 2^64 - 1")
            rows = rows.astype(np.uint64)
    except (OverflowError, ValueError):
        raise TypeError("addresses, lengths and device numbers are integers from 0 to 2^64 - 1") from None
    if rows.size == 0:
        return np.empty((0, 3), dtype=np.uint64)
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise TypeError(f"descriptors must be N x 3 (address, bytes, device number), got {rows.shape}")
    return np.array(rows, dtype=np.uint64, order="C")


class _DescriptorList:
    """Common to both kinds: an array of rows, and a tail for each row where the kind has one. Confined to a thread."""

    columns: ClassVar[int] = 3
    magic: ClassVar[bytes] = b"OSxl"

    def __init__(self, type: nixl_mem_t, descs: Any = 0, *, init_size: int = 0) -> None:
        self._type = nixl_mem_t(type)
        self._tails: list[bytes] = []
        if isinstance(descs, (int, np.integer)):  # NIXL's initial size
            size = int(descs) or init_size
            self._rows = np.zeros((size, 3), dtype=np.uint64)
            self._tails = [b""] * size if self.columns == 4 else []
        elif isinstance(descs, np.ndarray):
            self._rows = _as_rows(descs)
            self._tails = [b""] * len(self._rows) if self.columns == 4 else []
        else:
            rows = [_row(entry, self.columns) for entry in descs]
            self._rows = _as_rows([row[:3] for row in rows])
            if self.columns == 4:
                self._tails = [self._tail(row[3]) for row in rows]

    @staticmethod
    def _tail(value: Any) -> bytes:
        return value.encode() if isinstance(value, str) else bytes(value)

    def rows(self) -> np.ndarray:
        """N x 3 of uint64: address, bytes, device number. Not a copy."""
        return self._rows

    def tails(self) -> list[bytes]:
        """One for each row of a registration list."""
        return self._tails

    def getType(self) -> nixl_mem_t:
        return self._type

    def descCount(self) -> int:
        return len(self._rows)

    __len__ = descCount

    def isEmpty(self) -> bool:
        return len(self._rows) == 0

    def _at(self, index: int) -> int:
        if not 0 <= index < len(self._rows):
            raise IndexError(f"descriptor {index} of {len(self._rows)}")
        return int(index)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        row = tuple(self._rows[self._at(index)].tolist())
        return (*row, self._tails[index]) if self.columns == 4 else row

    def __setitem__(self, index: int, desc: tuple[Any, ...]) -> None:
        values = _row(desc, self.columns)
        self._rows[self._at(index)] = _as_rows([values[:3]])[0]
        if self.columns == 4:
            self._tails[index] = self._tail(values[3])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (self[index] for index in range(len(self)))

    def addDesc(self, desc: tuple[Any, ...]) -> None:
        values = _row(desc, self.columns)
        self._rows = np.concatenate([self._rows, _as_rows([values[:3]])])
        if self.columns == 4:
            self._tails.append(self._tail(values[3]))

    append = addDesc

    def remDesc(self, index: int) -> None:
        self._rows = np.delete(self._rows, self._at(index), axis=0)
        if self.columns == 4:
            del self._tails[index]

    def clear(self) -> None:
        self._rows = np.empty((0, 3), dtype=np.uint64)
        self._tails = []

    def index(self, desc: tuple[Any, ...]) -> int:
        """Where this range is. nixlNotFoundError: it is not in the list."""
        wanted = _as_rows([_row(desc, self.columns)[:3]])[0]
        found = np.flatnonzero((self._rows == wanted).all(axis=1))
        if not len(found):
            raise refusal(nixlNotFoundError, f"{tuple(desc)} is not in the list")
        return int(found[0])

    def print(self) -> None:
        print(f"{type(self).__name__}({self._type}, {len(self)} descriptors)")
        for row in self:
            print("   ", *row)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _DescriptorList)
            and type(self) is type(other)
            and self._type == other._type
            and np.array_equal(self._rows, other._rows)
            and self._tails == other._tails
        )

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> bytes:
        tails = b"".join(struct.pack("<I", len(tail)) + tail for tail in self._tails)
        return _HEAD.pack(self.magic, self._type, len(self._rows)) + self._rows.tobytes() + tails

    def __setstate__(self, state: bytes) -> None:
        if len(state) < _HEAD.size:
            raise refusal(nixlMismatchError, f"a serialized list of {len(state)} bytes")
        magic, kind, count = _HEAD.unpack_from(state)
        body = memoryview(state)[_HEAD.size :]
        if magic != self.magic or kind not in tuple(nixl_mem_t) or count * _ROW_BYTES > len(body):
            raise refusal(nixlMismatchError, "a serialized list that is cut short or of another kind")
        self._type = nixl_mem_t(kind)
        self._rows = np.frombuffer(body[: count * _ROW_BYTES], dtype=np.uint64).reshape(-1, 3).copy()
        self._tails, rest = [], bytes(body[count * _ROW_BYTES :])
        for _ in range(count if self.columns == 4 else 0):
            size = struct.unpack_from("<I", rest)[0] if len(rest) >= 4 else -1
            if not 0 <= size <= len(rest) - 4:
                raise refusal(nixlMismatchError, "a serialized list that is cut short")
            self._tails.append(rest[4 : 4 + size])
            rest = rest[4 + size :]
        if rest:
            raise refusal(nixlMismatchError, f"a serialized list with {len(rest)} bytes too many")


class nixlXferDList(_DescriptorList):
    """Ranges to move."""


class nixlRegDList(_DescriptorList):
    """Ranges to register, each with bytes of metadata that only file-like memory would use."""

    columns = 4
    magic = b"OSrg"

    def trim(self) -> nixlXferDList:
        """The ranges without the metadata."""
        return nixlXferDList(self._type, self._rows)


class nixlRemoteDList:
    """Ranges to move, each with the name of its agent. A list for memory views, which are refused."""

    def __init__(self, type: nixl_mem_t, descs: Iterable[tuple[Any, ...]] | int = (), *, init_size: int = 0) -> None:
        self._type = nixl_mem_t(type)
        self._entries = [] if isinstance(descs, int) else [_row(entry, 4) for entry in descs]

    def getType(self) -> nixl_mem_t:
        return self._type

    def descCount(self) -> int:
        return len(self._entries)

    __len__ = descCount

    def isEmpty(self) -> bool:
        return not self._entries

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if not 0 <= index < len(self._entries):
            raise IndexError(f"descriptor {index} of {len(self._entries)}")
        return self._entries[index]

    def __setitem__(self, index: int, desc: tuple[Any, ...]) -> None:
        self[index]
        self._entries[index] = _row(desc, 4)

    def addDesc(self, desc: tuple[Any, ...]) -> None:
        self._entries.append(_row(desc, 4))

    append = addDesc

    def remDesc(self, index: int) -> None:
        self[index]
        del self._entries[index]

    def clear(self) -> None:
        self._entries.clear()

    def print(self) -> None:
        print(f"nixlRemoteDList({self._type}, {len(self)} descriptors)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, nixlRemoteDList) and (self._type, self._entries) == (other._type, other._entries)

    __hash__ = None  # type: ignore[assignment]
