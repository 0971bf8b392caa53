"""A pool's segments, registered with a transfer engine: each once, before the first tensor in it."""

from __future__ import annotations

from typing import Any

from onesided.npu import extension
from onesided.npu.pools import _id


class Registration:
    """What `register_pool` gives back. Ends with close() or the `with` block; then everything is deregistered."""

    def __init__(self, engine: Any, pool: Any) -> None:
        loaded = extension.load()
        self._joined = loaded.PoolRegistration(_id(pool), engine.register_mem, engine.deregister_mem)

    @property
    def segments(self) -> int:
        """Segments registered now."""
        return self._joined.segments

    @property
    def registrations(self) -> int:
        """Registrations made so far: it does not move while tensors come and go."""
        return self._joined.registrations

    @property
    def failures(self) -> list[str]:
        """Segments that could not be registered or deregistered, in words. Tensors in them cannot be transferred."""
        return self._joined.failures

    def close(self) -> None:
        """Deregisters all segments and stops listening. A second call does nothing."""
        self._joined.close()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def register_pool(engine: Any, pool: Any) -> Registration:
    """Registers every segment of the aligned pool with the engine (anything with register_mem and deregister_mem), now
    and when it grows; deregisters a segment before it goes back. RuntimeError: a segment there already was refused."""
    return Registration(engine, pool)
