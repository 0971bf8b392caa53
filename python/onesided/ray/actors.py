"""A decorator for actors that use the transport. A receiving actor needs Ray's system threads
(enable_tensor_transport), the registration of the transport in its own process, also after a restart, and the npu that
it selected in __init__ set for the receiving thread. The decorator does all three."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import ray

from onesided.ray import device as npu_device
from onesided.ray import registration


def actor(
    cls: type | None = None,
    /,
    *,
    devices: str | Iterable[str] = registration.SUPPORTED_DEVICES,
    device: int | str | None = None,
    **options: Any,
):
    """`@onesided.ray.actor` or `@onesided.ray.actor(num_cpus=1, ...)`: `ray.remote` for an actor that sends or receives
    HIXL objects. `devices` and `device` are those of `register_hixl_tensor_transport` (default: all, and the npu that is
    current at the end of __init__), `options` those of `ray.remote`. Works for asyncio actors. Raises TypeError for
    anything but a class, ValueError for devices that HIXL does not carry."""
    devices = registration.check_devices(devices)
    if device is not None:
        device = npu_device.parse(device)
    if cls is None:
        return functools.partial(actor, devices=devices, device=device, **options)
    if not isinstance(cls, type):
        raise TypeError(f"@onesided.ray.actor decorates a class, not {cls!r}; for functions use @ray.remote")
    if options.get("enable_tensor_transport") is False:
        raise ValueError(
            "@onesided.ray.actor is for actors with tensor transport; enable_tensor_transport=False is not"
        )
    options["enable_tensor_transport"] = True

    original: Callable[..., None] = getattr(cls, "__init__")  # noqa: B009

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        registration.register_hixl_tensor_transport(devices, device=device)
        original(self, *args, **kwargs)
        npu_device.remember_current()

    if inspect.isfunction(original):  # object.__init__ has no signature that Ray can read
        __init__ = functools.wraps(original)(__init__)
    prepared = type(cls.__name__, (cls,), {"__init__": __init__, "__doc__": cls.__doc__, "__module__": cls.__module__})
    prepared.__qualname__ = cls.__qualname__
    return ray.remote(**options)(prepared)
