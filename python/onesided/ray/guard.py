"""Why: three mistakes make Ray wait for a minute and then blame nobody, because it notices them too late or not at all:
a receiving actor without tensor transport, an object passed as a keyword argument, and an engine that outlives
ray.shutdown(). Ray has no hook for them, so three of its methods are wrapped where the mistake can still be seen."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ray._raylet import ObjectRef
from ray.actor import ActorHandle
from ray.experimental.rdt.rdt_manager import RDTManager

from onesided.ray import process

BACKEND = "HIXL"
_MARK = "__onesided_guard__"


def install() -> None:
    """Idempotent."""
    _wrap(RDTManager, "queue_or_trigger_out_of_band_tensor_transfer", _with_receiver_check)
    _wrap(ActorHandle, "_actor_method_call", _with_keyword_check)
    _wrap(RDTManager, "shutdown", _with_engine_end)


def _wrap(owner: type, name: str, wrapper: Callable[[Callable], Callable]) -> None:
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return
    wrapped = functools.wraps(original)(wrapper(original))
    setattr(wrapped, _MARK, True)
    setattr(owner, name, wrapped)


def _is_ours(value: Any) -> bool:
    """An object of this transport that this process owns or has borrowed."""
    if not isinstance(value, ObjectRef):
        return False
    from ray._private.worker import global_worker

    meta = global_worker.rdt_manager.get_rdt_metadata(value.hex())
    return meta is not None and meta.tensor_transport_backend == BACKEND


def _name(actor: ActorHandle) -> str:
    description = getattr(actor, "_ray_actor_creation_function_descriptor", None)
    return getattr(description, "class_name", None) or repr(actor)


def _with_receiver_check(original: Callable) -> Callable:
    def queue_or_trigger(self: RDTManager, dst_actor: ActorHandle, task_args: tuple[Any, ...]) -> None:
        # Ray would queue the receive behind the very task that waits for it, for 60 s.
        if not dst_actor._ray_enable_tensor_transport and any(map(_is_ours, task_args)):
            raise ValueError(
                f"actor {_name(dst_actor)} is given a {BACKEND} object but was created without tensor transport, so it "
                "has no thread to receive it on. Decorate its class with @onesided.ray.actor, or with "
                "@ray.remote(enable_tensor_transport=True)."
            )
        return original(self, dst_actor, task_args)

    return queue_or_trigger


def _with_keyword_check(original: Callable) -> Callable:
    def actor_method_call(self: ActorHandle, method_name: str, args: Any = None, kwargs: Any = None, **options: Any):
        # Ray transfers positional arguments only: the task would wait for an object that nobody sends.
        for keyword, value in (kwargs or {}).items():
            if _is_ours(value):
                raise ValueError(
                    f"{_name(self)}.{method_name}({keyword}=...) is given a {BACKEND} object by keyword; Ray transfers "
                    "positional arguments only. Pass it by position."
                )
        return original(self, method_name, args=args, kwargs=kwargs, **options)

    return actor_method_call


def _with_engine_end(original: Callable) -> Callable:
    def shutdown(self: RDTManager) -> None:
        original(self)
        process.close()

    return shutdown
