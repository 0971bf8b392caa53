"""The actors that the tests of this folder share: one that makes objects, one that looks at them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import ray
import torch

import onesided.ray


@onesided.ray.actor(num_cpus=0)
class Owner:
    """Makes objects with functions that the test sends, and keeps them."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    @ray.method(tensor_transport="HIXL")
    def make(self, function: Callable[[], Any]) -> Any:
        return function()

    @ray.method(tensor_transport="HIXL")
    def give(self, name: str) -> Any:
        return self.kept[name]

    def keep(self, name: str, function: Callable[[], Any]) -> None:
        self.kept[name] = function()

    def drop(self, name: str) -> None:
        del self.kept[name]

    def put(self, function: Callable[[], Any]) -> list[ray.ObjectRef]:
        return [ray.put(function(), _tensor_transport="HIXL")]

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(self)

    def stats(self) -> dict[str, Any]:
        return onesided.ray.stats()

    def stored_objects(self) -> int:
        return ray._private.worker.global_worker.rdt_manager.rdt_store.get_num_objects()

    def pid(self) -> int:
        return os.getpid()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@onesided.ray.actor(num_cpus=0)
class Reader:
    """Receives objects and answers questions about them."""

    def __init__(self) -> None:
        self.kept: Any = None

    def echo(self, value: Any) -> Any:
        return by_value(value)

    def keep(self, value: Any) -> None:
        self.kept = value

    def ask(self, value: Any, question: Callable[[Any], Any]) -> Any:
        return question(value)

    def call(self, function: Callable[[Any], Any]) -> Any:
        return function(self)

    def get(self, refs: list[ray.ObjectRef], timeout: float | None = None) -> Any:
        return by_value(ray.get(refs[0], timeout=timeout))

    def stats(self) -> dict[str, Any]:
        return onesided.ray.stats()

    def threads(self) -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    def pid(self) -> int:
        return os.getpid()


def by_value(value: Any) -> Any:
    """The same with each tensor as (device, dtype, shape, bytes): compares exactly and travels without torch."""
    if isinstance(value, torch.Tensor):
        host = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        raw = host.reshape(-1).view(torch.uint8).numpy().tobytes() if host.numel() else b""
        return ("tensor", value.device.type, str(value.dtype), tuple(value.shape), raw)
    if isinstance(value, dict):
        return {key: by_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(by_value(inner) for inner in value)
    return value
