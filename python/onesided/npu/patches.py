"""The changes of `install()` in torch_npu's Python code: three constructors and functions accept `sub_block_alignment`.

The classes remain torch_npu's own objects, so programs that imported them before get the change too. Without the new
argument torch_npu's own code runs with unchanged arguments."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from onesided.npu.alignment import checked

# Alignment of allocators made with one, by identity of the C++ object that MemPool gets (it has no attributes).
_alignments: dict[int, int] = {}
_undo: list[Callable[[], None]] = []
# The pool of change_current_allocator(aligned); held here, because no other object refers to it.
_default_pool: Any = None


def alignment_of(allocator: Any) -> int:
    """The alignment that an allocator object (`NPUPluggableAllocator(...).allocator()`) was made with, or 0."""
    return _alignments.get(id(allocator), 0)


def _replace(owner: Any, name: str, new: Any) -> None:
    old = getattr(owner, name)
    setattr(owner, name, new)
    _undo.append(lambda: setattr(owner, name, old))


def apply(extension: ModuleType) -> None:
    """Patches torch_npu. Undone by `revert()`."""
    import torch_npu
    from torch_npu.npu import memory

    _replace(memory.NPUPluggableAllocator, "__init__", _pluggable_init(memory.NPUPluggableAllocator.__init__))
    _replace(memory.MemPool, "__init__", _mem_pool_init(extension, memory.MemPool.__init__))
    use = _use_mem_pool(extension, memory.use_mem_pool)
    change = _change_current_allocator(extension, memory.change_current_allocator)
    snapshot = _memory_snapshot(memory.memory_snapshot)
    for module in (memory, torch_npu.npu):
        _replace(module, "use_mem_pool", use)
        _replace(module, "change_current_allocator", change)
        _replace(module, "memory_snapshot", snapshot)


def revert() -> None:
    """Restores torch_npu's own code."""
    while _undo:
        _undo.pop()()


def drop_default_pool(extension: ModuleType) -> None:
    """Ends `change_current_allocator(aligned)`: allocations outside pools are the native allocator's again."""
    global _default_pool
    if _default_pool is not None:
        extension.set_default_pool(None)
        _default_pool = None


def _pluggable_init(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(
        self: Any, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str, sub_block_alignment: int | None = None
    ) -> None:
        alignment = checked(sub_block_alignment)
        original(self, path_to_so_file, alloc_fn_name, free_fn_name)
        self._sub_block_alignment = alignment
        if alignment:
            key = id(self._allocator)
            _alignments[key] = alignment
            weakref.finalize(self._allocator, _alignments.pop, key, None)

    __init__.__doc__ = (original.__doc__ or "") + (
        "\n            sub_block_alignment(int, optional): every allocation that goes through this allocator starts at a\n"
        "                multiple of this many bytes and is charged in multiples of it (onesided).\n"
    )
    return __init__


def _construct(original: Callable[..., None], pool: Any, allocator: Any, *modes: bool) -> None:
    """torch_npu's own constructor. Before 2.13 it knows no modes: one that is asked for is its TypeError."""
    while modes and not modes[-1]:
        modes = modes[:-1]
    original(pool, allocator, *modes)


def _make_pool(extension: ModuleType, pool: Any, allocator: Any) -> None:
    """The aligned pool of a MemPool whose C++ part makes none (torch_npu before 2.11). It goes with the MemPool."""
    import torch_npu
    from torch_npu.npu.memory import MemPoolContext

    device = torch_npu.npu.current_device()
    torch_npu.npu.init()
    context = MemPoolContext(pool)  # tells the extension the pool's own allocator
    extension.add_declared_pool(device, pool.id, allocator)
    del context
    weakref.finalize(pool, extension.release_pool, device, pool.id).atexit = False


def _mem_pool_init(extension: ModuleType, original: Callable[..., None]) -> Callable[..., None]:
    def __init__(
        self: Any,
        allocator: Any = None,
        use_on_oom: bool = False,
        no_split: bool = False,
        sub_block_alignment: int | None = None,
        *,
        pool_options: Mapping[str, Any] | None = None,
    ) -> None:
        alignment = checked(sub_block_alignment)
        if sub_block_alignment is None:
            alignment = alignment_of(allocator)
        if not alignment:
            if pool_options:
                raise ValueError("pool_options are options of an aligned pool: pass sub_block_alignment too")
            _construct(original, self, allocator, use_on_oom, no_split)
            return
        extension.declare_next_pool(alignment, no_split=no_split, **(pool_options or {}))
        try:
            if extension.pools_made_in_cpp:
                _construct(original, self, allocator, use_on_oom, no_split)
            else:
                _construct(original, self, allocator)
                _make_pool(extension, self, allocator)
            if use_on_oom:
                extension.set_use_on_oom(extension.pool_device(self.id), self.id, True)
        finally:
            extension.undeclare_next_pool()

    __init__.__doc__ = (
        "allocator, use_on_oom, no_split: as ever. sub_block_alignment (onesided): every tensor in the pool starts at a\n"
        "multiple of this many bytes. pool_options: max_bytes, preallocate_bytes, gc_threshold, segment_bytes,\n"
        "segment_bytes_max, guard_bytes of the aligned pool."
    )
    return __init__


def _use_mem_pool(extension: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    import torch_npu
    from torch_npu.npu.utils import _get_device_index

    # From 2.13 on torch_npu's own use_mem_pool() routes this thread's allocations; earlier every thread's. (2.10 has the
    # function for it, and does not use it.)
    by_thread = extension.tells_captures

    @contextlib.contextmanager
    def use_mem_pool(pool: Any, device: Any = None, all_threads: bool = False) -> Iterator[None]:
        aligned = not by_thread and tuple(pool.id) in extension.pool_ids()
        if not all_threads and not aligned:
            with _no_capture(extension, original(pool, device)):
                yield
            return
        index = torch_npu.npu.current_device() if device is None else _get_device_index(device)
        extension.begin_pool(index, pool.id, all_threads)
        try:
            yield
        finally:
            extension.end_pool(index, pool.id)
            if aligned or extension.pools_made_in_cpp:
                extension.release_pool(index, pool.id)

    use_mem_pool.__doc__ = (original.__doc__ or "") + (
        "\n        all_threads (bool): every thread's allocations on the device go to the pool, e.g. gradients that\n"
        "            `backward()` makes on autograd's threads (onesided). Off by default.\n"
    )
    return use_mem_pool


@contextlib.contextmanager
def _no_capture(extension: ModuleType, routed: Any) -> Iterator[None]:
    """Enters and leaves torch_npu's use_mem_pool(), which must not be taken for the beginning of a graph capture."""
    extension.expect_captures(False)
    try:
        routed.__enter__()
    finally:
        extension.expect_captures(True)
    try:
        yield
    finally:
        routed.__exit__(None, None, None)


def _memory_snapshot(original: Callable[..., Any]) -> Callable[..., Any]:
    def memory_snapshot(mempool_id: Any = None) -> Any:
        everything = original()
        if mempool_id is None:
            return everything
        # torch_npu 2.13's own filter drops references that it does not own (the two ints of the id): from the 257th pool
        # on, pool.snapshot() would corrupt the interpreter's memory.
        wanted = (mempool_id[0], mempool_id[1])
        return [segment for segment in everything if tuple(segment["segment_pool_id"]) == wanted]

    memory_snapshot.__doc__ = original.__doc__
    return memory_snapshot


def _change_current_allocator(extension: ModuleType, original: Callable[..., None]) -> Callable[..., None]:
    def change_current_allocator(allocator: Any) -> None:
        global _default_pool
        alignment = getattr(allocator, "_sub_block_alignment", 0)
        if alignment:
            from torch_npu.npu.memory import MemPool

            pool = MemPool(allocator.allocator())
            extension.set_default_pool(pool.id)
            _default_pool = pool
            return
        # torch_npu replaces the decorated object: remove the decorator, then install it in front of the new object.
        extension.uninstall()
        try:
            original(allocator)
        finally:
            extension.install()

    change_current_allocator.__doc__ = (original.__doc__ or "") + (
        "\n    An allocator with sub_block_alignment may be set at any time: from then on everything outside other pools\n"
        "    comes from it, aligned (onesided).\n"
    )
    return change_current_allocator
