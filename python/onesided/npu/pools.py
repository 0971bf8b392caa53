"""Inspection of aligned pools: statistics, segments, notifications, snapshots."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from onesided.npu import extension

Segment = dict[str, int]


def _extension() -> ModuleType:
    return extension.load()


def _id(pool: Any) -> tuple[int, int]:
    return tuple(getattr(pool, "id", pool))


def pools() -> list[tuple[int, int]]:
    """Ids of all aligned pools, including released ones with live tensors."""
    return list(_extension().pool_ids())


def pool_of(tensor_or_address: Any) -> tuple[int, int] | None:
    """Id of the aligned pool that contains this memory, or None."""
    address = (
        tensor_or_address if isinstance(tensor_or_address, int) else tensor_or_address.untyped_storage().data_ptr()
    )
    return _extension().pool_of(address)


def pool_stats(pool: Any) -> dict[str, int]:
    """One pool's numbers, named as in `torch.npu.memory_stats`: "allocated_bytes.current" (charged), ".peak",
    ".allocated", ".freed"; reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes, overhead_bytes; the
    counts allocation, segment, active, inactive_split; num_ooms, num_alloc_retries, num_device_alloc, num_device_free.
    ValueError: not an aligned pool."""
    return dict(_extension().pool_stats(_id(pool)))


def pool_segments(pool: Any) -> list[Segment]:
    """The pool's segments: address and nbytes of the aligned part, raw_address and raw_bytes of the whole, stream."""
    return list(_extension().pool_segments(_id(pool)))


def trim(pool: Any) -> int:
    """Frees the pool's idle segments; returns their bytes."""
    return int(_extension().pool_trim(_id(pool)))


def native_segment(address: int) -> tuple[int, int]:
    """(base, nbytes) of the allocation that a torch_npu block starting at `address` was cut from, aligned pool or not."""
    return tuple(_extension().base_allocation(address))


class Subscription:
    """A subscription of two callbacks to a pool's segments. Ends with close(), or with the pool."""

    def __init__(self, pool_id: tuple[int, int], number: int) -> None:
        self._pool_id = pool_id
        self._number: int | None = number

    def close(self) -> None:
        """When it returns no callback is running and none will run."""
        number, self._number = self._number, None
        if number is not None:
            _extension().unsubscribe(self._pool_id, number)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def subscribe(
    pool: Any,
    on_segment_added: Callable[[Segment], None] | None = None,
    on_segment_dropped: Callable[[Segment], None] | None = None,
) -> Subscription:
    """Calls back for each existing and future segment before its first tensor, and for its end before the memory is
    freed.

    The callbacks run on the thread that grows or trims the pool, without a lock of the pool."""
    pool_id = _id(pool)
    return Subscription(pool_id, _extension().subscribe(pool_id, on_segment_added, on_segment_dropped))


def memory_snapshot() -> dict[str, Any]:
    """{"segments", "device_traces", ...} of the native allocator and all aligned pools, as PyTorch's memory visualiser
    reads it (torch.npu.memory._record_memory_history turns traces on)."""
    from torch_npu.npu import memory

    return memory._snapshot()
