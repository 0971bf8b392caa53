"""Statistics of this process's transport, for use inside an actor: registrations, connections, and the fetches of an
object with their rates."""

from __future__ import annotations

import collections
import threading
from dataclasses import asdict, dataclass
from typing import Any

from onesided.ray import process

_FETCHES_REMEMBERED = 256


@dataclass(frozen=True)
class FetchRecord:
    """One fetch that ended in this process. A value."""

    object_id: str
    engine_id: str
    tensors: int
    nbytes: int
    elapsed_us: int
    state: str

    @property
    def gbps(self) -> float:
        """Rate in 1e9 bytes per second, from start to end; 0 if nothing was timed."""
        return self.nbytes / self.elapsed_us / 1e3 if self.elapsed_us else 0.0


_lock = threading.Lock()
_fetches: collections.deque[FetchRecord] = collections.deque(maxlen=_FETCHES_REMEMBERED)
_totals = collections.Counter({"fetches": 0, "fetched_bytes": 0, "fetches_failed": 0})
_NUMBERS = (
    "registrations", "deregistrations", "regions", "memories", "objects", "objects_published", "objects_released",
    "object_bytes", "peers", "connects", "connection_reuses", "evictions", "receive_pool_bytes",
    "receive_pool_used_bytes",
)  # fmt: skip


def note_fetch(record: FetchRecord) -> None:
    """Records the result of a fetch; for the transport."""
    with _lock:
        _fetches.append(record)
        if record.state == "DONE":
            _totals.update(fetches=1, fetched_bytes=record.nbytes)
        else:
            _totals.update(fetches_failed=1)


def forget() -> None:
    """Resets the records, as a new engine resets all other numbers."""
    with _lock:
        _fetches.clear()
        _totals.update({name: -count for name, count in _totals.items()})


def stats() -> dict[str, Any]:
    """Numbers of this process's transport (docs/ray.md lists them). All zero before the first use."""
    numbers: dict[str, Any] = dict.fromkeys(_NUMBERS, 0) | {"engine_id": None}
    here = process.peek()
    if here is not None:
        counted = here.exchange.stats()
        numbers |= {name: counted[name] for name in _NUMBERS if name in counted} | {
            "engine_id": here.engine_id,
            "memories": len(here.memories),
            "regions": here.engine.stats()["regions"],
        }
        numbers["registrations"] += here.npu.registrations()
        numbers["deregistrations"] += here.npu.deregistrations()
        if here.receive_pool is not None:
            pool = here.receive_pool.stats()
            numbers["registrations"] += pool["registrations"]
            numbers["deregistrations"] += pool["registrations"] - pool["segments"]
            numbers["receive_pool_bytes"] = pool["reserved_bytes"]
            numbers["receive_pool_used_bytes"] = pool["used_bytes"]
    with _lock:
        return numbers | dict(_totals)


def object_stats(ref: Any) -> dict[str, Any]:
    """This process's records of one object (an ObjectRef, or its hex id): its finished fetches, latest last, and its
    size. Empty lists and zeros for an unknown object."""
    object_id = ref if isinstance(ref, str) else ref.hex()
    here = process.peek()
    published = here.exchange.find(object_id) if here is not None else None
    with _lock:
        records = [record for record in _fetches if record.object_id == object_id]
    fetches = [asdict(record) | {"gbps": record.gbps} for record in records]
    nbytes, tensors = published if published else (0, 0)
    return {"published": published is not None, "nbytes": nbytes, "tensors": tensors, "fetches": fetches}
