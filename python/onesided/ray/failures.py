"""Errors of the transport. Ray users catch RayDirectTransportError, so each error of the engine is raised as one, with
the object, its owner and the cause."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from onesided.engine import EngineError


def transport_error(text: str) -> Exception:
    # Ray's exceptions and its rdt package import each other: not at the top.
    from ray.exceptions import RayDirectTransportError

    return RayDirectTransportError(text)


# Statuses that mean that the owner's process has ended or cannot be reached.
_OWNER_GONE = frozenset({"NOT_CONNECTED", "PEER_LOST"})


def _text(object_id: str, engine_id: str, status: str, what: str, cause: str) -> str:
    hint = ". The source actor may have died" if status in _OWNER_GONE else ""
    return f"The HIXL transfer of object {object_id} from {engine_id or 'its owner'} {what}: {cause}{hint}"


@contextlib.contextmanager
def as_transport_errors(object_id: str, engine_id: str) -> Iterator[None]:
    """Converts errors of starting a transfer into RayDirectTransportError. Errors of the caller (ValueError, TypeError)
    and interrupts are not converted."""
    try:
        yield
    except (RuntimeError, OSError, MemoryError) as error:
        status = error.status.name if isinstance(error, EngineError) else ""
        raise transport_error(_text(object_id, engine_id, status, "failed", str(error))) from error


def raise_unless_done(state: str, fetch: Any, object_id: str, engine_id: str) -> None:
    """RayDirectTransportError with the cause for a transfer that failed or was aborted."""
    if state == "DONE":
        return
    status, cause = fetch.error
    what = "was aborted" if state == "ABORTED" else "failed"
    raise transport_error(_text(object_id, engine_id, status, what, cause))
