"""Segments registered with a transfer engine: an aligned pool's before the first tensor in them, torch_npu's own when a
tensor in them is to be transferred."""

from __future__ import annotations

import weakref
from typing import Any

from onesided.npu import extension
from onesided.npu.pools import Segment, _id, pool_of

# Registrations that are not closed: they exist as long as the engine, even if the caller does not keep the result.
_open: weakref.WeakKeyDictionary[Any, set[Registration]] = weakref.WeakKeyDictionary()


class Registration:
    """The result of `register_pool`. Ends with close(), the `with` block or the engine; then everything is
    deregistered. A segment that a transfer still uses remains in the pool until the transfer has ended."""

    def __init__(self, engine: Any, pool: Any) -> None:
        # A reference to the engine itself would keep it alive, while its registrations wait for its end.
        self._engine = weakref.ref(engine)
        self._joined = extension.load().PoolRegistration(_id(pool), self._register, self._deregister)
        _open.setdefault(engine, set()).add(self)

    def _register(self, address: int, nbytes: int, kind: str) -> Any:
        engine = self._engine()
        if engine is None:
            raise RuntimeError("the engine was deleted")
        return engine.register_mem(address, nbytes, kind)

    def _deregister(self, handle: Any) -> None:
        engine = self._engine()
        if engine is not None:  # its registrations ended with the engine
            engine.deregister_mem(handle)

    @property
    def segments(self) -> int:
        """Segments registered now."""
        return self._joined.segments

    @property
    def registrations(self) -> int:
        """Registrations made so far; constant while tensors are only allocated and freed in existing segments."""
        return self._joined.registrations

    @property
    def failures(self) -> list[str]:
        """Texts about segments that could not be registered or deregistered. Tensors in them cannot be transferred."""
        return self._joined.failures

    def close(self) -> None:
        """Deregisters all segments and stops listening. A second call does nothing."""
        engine = self._engine()
        if engine is not None:
            _open.get(engine, set()).discard(self)
        self._joined.close()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def register_pool(engine: Any, pool: Any) -> Registration:
    """Registers every present and future segment of the aligned pool with the engine (any object with register_mem and
    deregister_mem), and deregisters a segment before it is freed, until the result is closed or the engine ends. The
    result need not be kept. RuntimeError: a present segment was refused."""
    return Registration(engine, pool)


class NativeRegistration:
    """The result of `register_native`. Ends with close() or the `with` block; then everything is deregistered."""

    def __init__(self, engine: Any) -> None:
        self._native = extension.load().NativeRegistration(engine)

    def add(self, tensor: Any) -> Segment:
        """Registers the segment that contains the tensor, if it is not registered yet, and returns its range:
        {"address", "nbytes"}.

        It stays registered, for all tensors in it, until torch_npu frees the segment. ValueError: the tensor lies in an
        aligned pool (use register_pool). RuntimeError: not npu memory of this process, a growable segment
        (expandable_segments), or the engine's error."""
        start = tensor.untyped_storage().data_ptr()
        if pool_of(start) is not None:
            raise ValueError(f"{start:#x} lies in the aligned pool {pool_of(start)}: use register_pool")
        address, nbytes = self._native.add(start)
        return {"address": address, "nbytes": nbytes}

    @property
    def segments(self) -> int:
        """Segments registered now."""
        return self._native.segments

    @property
    def registrations(self) -> int:
        """Registrations made so far; constant while tensors are only allocated and freed in the same segments."""
        return self._native.registrations

    @property
    def failures(self) -> list[str]:
        """Texts about segments that could not be deregistered before they were freed."""
        return self._native.failures

    def close(self) -> None:
        """Deregisters all segments and stops listening. A second call does nothing."""
        self._native.close()

    def __enter__(self) -> NativeRegistration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def register_native(engine: Any) -> NativeRegistration:
    """Registers segments of torch_npu's own allocator with an `onesided.Engine`, each once, as tensors in them are added;
    deregisters each before torch_npu frees it, for any reason (empty_cache, exhausted memory, garbage collection).
    TypeError: not an onesided.Engine, which is required because torch_npu's allocator then holds a lock under which no
    Python runs."""
    return NativeRegistration(engine)
