"""Where publishers leave their handles and readers find them: a directory, a torch.distributed store, or the handles
themselves (an actor's reply)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onesided.weights.errors import WeightsError
from onesided.weights.manifest import Manifest

_PAUSE_S = 0.02


def leave(at: Any, manifest: Manifest) -> None:
    """Replaces what that rank of that group left before."""
    name = f"{manifest.group}.{manifest.rank}.weights"
    if isinstance(at, str | os.PathLike):
        path = Path(at) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{name}.{os.getpid()}")
        part.write_bytes(manifest.encode())
        part.replace(path)
    elif hasattr(at, "set"):
        at.set(f"onesided/{name}", manifest.encode())
    else:
        raise WeightsError(f"at={at!r}: expected a directory or a torch.distributed store")


def collect(at: Any, group: str, timeout_s: float) -> list[Manifest]:
    """All ranks of the group, in order. WeightsError: not all came in time, names those that are missing; handles of
    several worlds."""
    if not isinstance(at, str | os.PathLike) and not hasattr(at, "set"):
        return _checked(_given(at), group)
    deadline = time.monotonic() + timeout_s
    found: dict[int, Manifest] = {}
    while True:
        world = found[0].world if 0 in found else 1
        for rank in range(world):
            if rank not in found and (data := _look(at, f"{group}.{rank}.weights")) is not None:
                found[rank] = Manifest.decode(data)
        world = found[0].world if 0 in found else 1
        if len(found) == world:
            return _checked(list(found.values()), group)
        if time.monotonic() > deadline:
            missing = [rank for rank in range(world) if rank not in found]
            raise WeightsError(
                f"ranks {missing} of {group!r} published nothing within {timeout_s} s; are they running?"
            )
        time.sleep(_PAUSE_S)


def _look(at: Any, name: str) -> bytes | None:
    if isinstance(at, str | os.PathLike):
        path = Path(at) / name
        return path.read_bytes() if path.exists() else None
    key = f"onesided/{name}"
    return bytes(at.get(key)) if at.check([key]) else None


def _given(handles: Iterable[bytes]) -> list[Manifest]:
    return [Manifest.decode(bytes(handle)) for handle in ([handles] if isinstance(handles, bytes) else handles)]


def _checked(manifests: list[Manifest], group: str) -> list[Manifest]:
    manifests = sorted(manifests, key=lambda manifest: manifest.rank)
    worlds = {(manifest.group, manifest.world) for manifest in manifests}
    if len(worlds) != 1:
        raise WeightsError(f"handles of different publications {sorted(worlds)}; restart, or clear where they meet")
    ranks = [manifest.rank for manifest in manifests]
    if ranks != list(range(manifests[0].world)):
        raise WeightsError(f"{group!r}: handles of ranks {ranks}, expected one of each of {manifests[0].world}")
    return manifests
