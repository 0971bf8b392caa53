"""Numbers that identify memories. A memory (a storage, a native device segment) is registered as a whole and stays
registered until it is freed, so it needs a unique number and a notification of its end. An address is not sufficient,
because the allocator reuses it."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable

import torch

# (address, bytes, 1 for device memory, the memory's address, its bytes, its number): Exchange takes these.
Span = tuple[int, int, int, int, int, int]

# The number of memory whose lifetime is managed elsewhere.
UNOWNED = 0
EMPTY: Span = (0, 0, 0, 0, 0, 0)
EMPTY_ON_DEVICE: Span = (0, 0, 1, 0, 0, 0)


class _Known(weakref.ref):
    """A known storage, its address, and its number. One small object, because a list may contain ten thousand."""

    __slots__ = ("address", "key", "number", "size")

    key: int
    number: int
    address: int
    size: int


def pooled_span(tensor: torch.Tensor) -> Span:
    """The bytes of a dense host tensor in memory that its pool has registered and manages."""
    nbytes = tensor.numel() * tensor.element_size()
    address = tensor.data_ptr()
    return (address, nbytes, 0, address, nbytes, UNOWNED) if nbytes else EMPTY


class Memories:
    """Numbers of the storages seen so far. Thread-safe. `gone` is called with a number when its storage is about to be
    freed, on the thread that frees it, possibly during a garbage collection."""

    def __init__(self, gone: Callable[[int], None]) -> None:
        self._gone = gone
        self._numbers = itertools.count(1)
        self._replacing = threading.Lock()
        # By id() of the storage object, which PyTorch keeps as long as the storage exists.
        known: dict[int, _Known] = {}
        self._known = known

        # Bound to these two, not to self, because a callback during interpreter exit must not resurrect an object.
        def storage_freed(reference: _Known) -> None:
            if known.get(reference.key) is reference:
                del known[reference.key]
                gone(reference.number)

        self._storage_freed = storage_freed

    def host_span(self, tensor: torch.Tensor) -> Span:
        """The bytes of a dense host tensor and the storage around them."""
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes == 0:
            return EMPTY
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        return (tensor.data_ptr(), nbytes, 0, address, size, self._number(storage, address, size))

    def number_of(self, storage: torch.UntypedStorage) -> int:
        """The storage's own number."""
        return self._number(storage, storage.data_ptr(), storage.nbytes())

    def _number(self, storage: torch.UntypedStorage, address: int, size: int) -> int:
        key = id(storage)
        known = self._known.get(key)
        if known is not None:
            if known() is storage and known.address == address and known.size == size:
                return known.number
            # resize_() or set_() moved it, so the old memory is freed. If T0 and T1 both detect this, one of them
            # reports it, and neither removes the other's new entry.
            with self._replacing:
                moved = self._known.get(key) is known and self._known.pop(key) is known
            if moved:
                self._gone(known.number)
        new = _Known(storage, self._storage_freed)
        new.key, new.number, new.address, new.size = key, next(self._numbers), address, size
        # T0 and T1 find the same new storage: both use the entry that was added first.
        return self._known.setdefault(key, new).number

    def __len__(self) -> int:
        return len(self._known)
