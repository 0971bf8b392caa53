"""Registration of the transport with Ray. Ray needs it before a class body uses tensor_transport="HIXL", in every
participating process, and refuses a second registration. The function here may be called any number of times, from any
thread."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterable

import torch
from ray.experimental.rdt import util as rdt

from onesided.ray import device as npu_device
from onesided.ray import guard
from onesided.ray.guard import BACKEND
from onesided.ray.transport import HixlTensorTransport

SUPPORTED_DEVICES = ("npu", "cpu")

_lock = threading.Lock()


def register_hixl_tensor_transport(
    devices: str | Iterable[str] = SUPPORTED_DEVICES, *, device: int | str | None = None
) -> None:
    """Registers "HIXL" with Ray in this process. Idempotent; a later call may change the devices.

    devices: the kinds of tensors it carries, one or several of "npu" and "cpu" (ValueError for others). With "npu", and where
    torch_npu is installed, the aligned-pool decorator is installed too (onesided.npu.install()).
    device: the npu (index, or "npu:1") that npu objects are received on. Default: the one the actor has set.
    """
    devices = check_devices(devices)
    if device is not None:
        npu_device.choose(npu_device.parse(device))
    register(devices)
    if "npu" in devices and _torch_npu_usable():
        from onesided import npu

        npu.install()
        npu_device.remember_current()


def check_devices(devices: str | Iterable[str]) -> list[str]:
    """The kinds of tensors as a list. ValueError: an empty list, or a kind that HIXL does not carry."""
    names = [devices] if isinstance(devices, str) else [str(name) for name in devices]
    if not names or (unknown := [name for name in names if name not in SUPPORTED_DEVICES]):
        raise ValueError(
            f"devices={names}: HIXL carries {' and '.join(SUPPORTED_DEVICES)} tensors"
            + (f", not {', '.join(unknown)}" if names else "; name at least one")
        )
    return names


def register(devices: list[str]) -> None:
    """Registers the transport with Ray, without using a device."""
    rdt._ensure_default_transports_registered()
    with _lock:
        known = rdt.transport_manager_info.get(BACKEND)
        if known is None:
            rdt.register_tensor_transport(BACKEND, devices, HixlTensorTransport, torch.Tensor)
        elif known.transport_manager_class is not HixlTensorTransport:
            raise RuntimeError(
                f"Ray has another transport under the name {BACKEND}: "
                f"{known.transport_manager_class.__module__}.{known.transport_manager_class.__qualname__}"
            )
        elif list(known.devices) != devices:
            rdt.transport_manager_info[BACKEND] = known._replace(devices=devices)
        guard.install()
    npu_device.watch()


def _torch_npu_usable() -> bool:
    if "torch_npu" in sys.modules:
        return True
    if importlib.util.find_spec("torch_npu") is None:
        return False
    try:
        npu_device.import_torch_npu()
    except ImportError:
        # There is no device runtime (for example in a driver that only coordinates), so this process cannot have npu
        # tensors.
        return False
    return True
