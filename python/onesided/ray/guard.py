"""Wrappers of Ray's methods. Ray detects some mistakes late or not at all and then waits for a minute without naming
the cause: a receiving actor without tensor transport, an object passed as a keyword argument. For a transport that is
not its own Ray also does not end it in ray.shutdown(), asks each receiver before it sends objects, and loses the tensor
transport of an actor that is looked up by name. Ray has no hooks for these cases."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import ray
from ray._raylet import ObjectRef
from ray.actor import ActorClass, ActorHandle
from ray.experimental import internal_kv
from ray.experimental.rdt.rdt_manager import RDTManager
from ray.remote_function import RemoteFunction

from onesided.ray import process, statistics

BACKEND = "HIXL"
_MARK = "__onesided_guard__"
_NAMESPACE = b"onesided"

# The actor to which this thread is passing HIXL objects.
_receiver = threading.local()


def install() -> None:
    """Idempotent."""
    if getattr(RDTManager, _MARK, False):
        return
    setattr(RDTManager, _MARK, True)
    _wrap(RDTManager, "queue_or_trigger_out_of_band_tensor_transfer", _with_receiver_check)
    _wrap(ActorHandle, "_actor_method_call", _with_keyword_check)
    _wrap(ActorClass, "_remote", _without_objects("the constructor of"))
    _wrap(ActorClass, "_remote", _that_is_remembered)
    _wrap(ray, "get_actor", _with_what_was_remembered)
    _wrap(RemoteFunction, "_remote", _without_objects("the task"))
    _wrap(RDTManager, "wait_until_custom_transports_registered", _without_asking_receivers)
    _wrap(RDTManager, "shutdown", _with_engine_end)


def _wrap(owner: Any, name: str, wrapper: Callable[[Callable], Callable]) -> None:
    original = getattr(owner, name)
    wrapped = functools.wraps(original)(wrapper(original))
    setattr(owner, name, wrapped)


def _transport_of(value: Any) -> str | None:
    """The transport of an object that this process owns or has borrowed; None for everything else."""
    if not isinstance(value, ObjectRef):
        return None
    from ray._private.worker import global_worker

    meta = global_worker.rdt_manager.get_rdt_metadata(value.hex())
    return None if meta is None else meta.tensor_transport_backend


def _name(actor: ActorHandle) -> str:
    description = getattr(actor, "_ray_actor_creation_function_descriptor", None)
    return getattr(description, "class_name", None) or repr(actor)


def _with_receiver_check(original: Callable) -> Callable:
    def queue_or_trigger(self: RDTManager, dst_actor: ActorHandle, task_args: tuple[Any, ...]) -> None:
        transports = set(map(_transport_of, task_args)) - {None}
        # Ray would queue the receive behind the task that waits for it, for 60 s.
        if BACKEND in transports and not dst_actor._ray_enable_tensor_transport:
            raise ValueError(
                f"actor {_name(dst_actor)} is given a {BACKEND} object but was created without tensor transport, so it "
                "has no thread to receive it on. Decorate its class with @onesided.ray.actor, or with "
                "@ray.remote(enable_tensor_transport=True)."
            )
        _receiver.actor = dst_actor if transports == {BACKEND} else None
        try:
            return original(self, dst_actor, task_args)
        finally:
            _receiver.actor = None

    return queue_or_trigger


def _without_asking_receivers(original: Callable) -> Callable:
    def wait_until_registered(self: RDTManager, actor: ActorHandle) -> None:
        # Ray would block this .remote() until the receiver's system thread reports that it has the transport, possibly
        # for ever. That is not necessary: a process that unpickles an object's metadata imports this package and
        # therefore has it.
        if getattr(_receiver, "actor", None) is not actor:
            original(self, actor)

    return wait_until_registered


def _with_keyword_check(original: Callable) -> Callable:
    def actor_method_call(self: ActorHandle, method_name: str, args: Any = None, kwargs: Any = None, **options: Any):
        # Ray transfers positional arguments only: the task would wait for an object that is never sent.
        for keyword, value in (kwargs or {}).items():
            if _transport_of(value) == BACKEND:
                raise ValueError(
                    f"{_name(self)}.{method_name}({keyword}=...) is given a {BACKEND} object by keyword; Ray transfers "
                    "positional arguments only. Pass it by position."
                )
        return original(self, method_name, args=args, kwargs=kwargs, **options)

    return actor_method_call


def _without_objects(what: str) -> Callable[[Callable], Callable]:
    def with_argument_check(original: Callable) -> Callable:
        def remote(self: Any, args: Any = None, kwargs: Any = None, **options: Any):
            # Ray sends such objects only to methods of actors: these would wait for ever, or fail because of a missing
            # field.
            if any(_transport_of(value) == BACKEND for value in [*(args or ()), *(kwargs or {}).values()]):
                name = getattr(self, "_function_name", None) or self.__ray_metadata__.class_name
                raise ValueError(
                    f"{what} {name} is given a {BACKEND} object; Ray transfers them only to methods of actors that exist. "
                    "Pass it to a method, or inside a list and ray.get it there."
                )
            return original(self, args=args, kwargs=kwargs, **options)

        return remote

    return with_argument_check


def _named(actor: ActorHandle) -> bytes:
    return b"onesided:receives:" + actor._actor_id.binary()


def _that_is_remembered(original: Callable) -> Callable:
    def remote(self: ActorClass, args: Any = None, kwargs: Any = None, **options: Any) -> ActorHandle:
        handle = original(self, args=args, kwargs=kwargs, **options)
        if options.get("name") and handle._ray_enable_tensor_transport:
            internal_kv._internal_kv_put(_named(handle), b"1", namespace=_NAMESPACE)
        return handle

    return remote


def _with_what_was_remembered(original: Callable) -> Callable:
    def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
        # In a process other than the actor's creator, Ray's handle does not record that the actor has tensor transport,
        # and Ray refuses its methods.
        handle = original(name, namespace)
        if not handle._ray_enable_tensor_transport:
            handle._ray_enable_tensor_transport = internal_kv._internal_kv_exists(_named(handle), namespace=_NAMESPACE)
        return handle

    return get_actor


def _with_engine_end(original: Callable) -> Callable:
    def shutdown(self: RDTManager) -> None:
        original(self)
        process.close()
        statistics.forget()

    return shutdown
