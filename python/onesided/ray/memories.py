"""Memory is registered as a whole and stays registered while it lives, so each memory (a storage, a native device
segment) needs a number of its own for its whole life, and somebody who says when it ends. An address is not enough:
the allocator gives it to the next tensor."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable

import torch

# (address, bytes, 1 for device memory, the memory's address, its bytes, its number): Exchange takes these.
Span = tuple[int, int, int, int, int, int]

# The number of memory whose life somebody else answers for.
UNOWNED = 0
EMPTY: Span = (0, 0, 0, 0, 0, 0)
EMPTY_ON_DEVICE: Span = (0, 0, 1, 0, 0, 0)


class _Known(weakref.ref):
    """A storage that was seen, where it was then, and its number. One object, for there may be ten thousand in a list."""

    __slots__ = ("address", "key", "number", "size")

    key: int
    number: int
    address: int
    size: int


def pooled_span(tensor: torch.Tensor) -> Span:
    """The bytes of a dense host tensor in memory that its pool has registered and answers for."""
    nbytes = tensor.numel() * tensor.element_size()
    address = tensor.data_ptr()
    return (address, nbytes, 0, address, nbytes, UNOWNED) if nbytes else EMPTY


class Memories:
    """Numbers of the storages seen so far. Thread-safe. `gone` is called with a number when its storage is about to be
    freed, from whichever thread frees it, possibly inside a garbage collection."""

    def __init__(self, gone: Callable[[int], None]) -> None:
        self._gone = gone
        self._numbers = itertools.count(1)
        self._replacing = threading.Lock()
        # By id() of the storage object, which PyTorch keeps for as long as the storage lives.
        known: dict[int, _Known] = {}
        self._known = known

        # Bound to these two, not to self: a callback during interpreter exit must not revive anything.
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
            # resize_() or set_() moved it: what it was is gone. T0 and T1 both see it: one of them says so, and neither
            # takes away what the other puts in its place.
            with self._replacing:
                moved = self._known.get(key) is known and self._known.pop(key) is known
            if moved:
                self._gone(known.number)
        new = _Known(storage, self._storage_freed)
        new.key, new.number, new.address, new.size = key, next(self._numbers), address, size
        # T0 and T1 meet the same new storage: both use the entry that came first.
        return self._known.setdefault(key, new).number

    def __len__(self) -> int:
        return len(self._known)
