"""Why: memory is registered as a whole and stays registered while it lives, so each memory (a storage, a native device
segment) needs a number of its own for its whole life, and somebody who says when it ends. An address is not enough:
the allocator gives it to the next tensor."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable

import torch

# (address, bytes, 1 for device memory, the memory's address, its bytes, its number): Exchange takes these.
Span = tuple[int, int, int, int, int, int]

# The number of memory whose life somebody else answers for.
UNOWNED = 0
EMPTY: Span = (0, 0, 0, 0, 0, 0)
EMPTY_ON_DEVICE: Span = (0, 0, 1, 0, 0, 0)


class Memories:
    """Numbers of the storages seen so far. Thread-safe. `gone` is called with a number when its storage is about to be
    freed, from whichever thread frees it, possibly inside a garbage collection."""

    def __init__(self, gone: Callable[[int], None]) -> None:
        self._gone = gone
        self._numbers = itertools.count(1)
        # By id() of the storage object, which PyTorch keeps for as long as the storage lives.
        self._known: dict[int, tuple[weakref.ref, int, int, int]] = {}

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
            if known[0]() is storage and known[2:] == (address, size):
                return known[1]
            # resize_() or set_() moved it: what it was is gone.
            self._known.pop(key, None)
            self._gone(known[1])
        number = next(self._numbers)
        # Bound to the number, not to self: a callback during interpreter exit must not revive anything.
        reference = weakref.ref(storage, self._make_callback(key, number))
        # T0 and T1 meet the same new storage: both use the entry that came first.
        return self._known.setdefault(key, (reference, number, address, size))[1]

    def _make_callback(self, key: int, number: int) -> Callable[[weakref.ref], None]:
        known, gone = self._known, self._gone

        def storage_freed(reference: weakref.ref) -> None:
            entry = known.get(key)
            if entry is not None and entry[0] is reference:
                del known[key]
                gone(number)

        return storage_freed

    def __len__(self) -> int:
        return len(self._known)
