"""Selects the build of the decorator for the running torch. A build loads in one minor version only."""

from __future__ import annotations

import importlib
from types import ModuleType

KNOWN = {"2.13": "onesided._torch_npu_2_13"}

_loaded: ModuleType | None = None


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def module_name(torch_version: str, torch_npu_version: str) -> str:
    """Name of the extension for these versions. ImportError, with the supported versions, for others."""
    torch_minor, npu_minor = _minor(torch_version), _minor(torch_npu_version)
    if torch_minor != npu_minor or torch_minor not in KNOWN:
        raise ImportError(
            f"onesided.npu does not support torch {torch_version} with torch_npu {torch_npu_version}: the allocator decorator "
            f"exists for torch and torch_npu {', '.join(KNOWN)}. Install one of these, or do not use onesided.npu: everything else of onesided works without it"
        )
    return KNOWN[torch_minor]


def load() -> ModuleType:
    """The extension. ImportError, with the reason: torch_npu is missing or has an unknown version, or onesided was
    built without it."""
    global _loaded
    if _loaded is not None:
        return _loaded
    try:
        import torch
        import torch_npu
    except ImportError as error:
        raise ImportError(
            f"onesided.npu needs torch and torch_npu ({error}). Without an NPU, run under `onesided sim`, or call "
            "onesided.ascend_sim.enable() before torch is imported"
        ) from error
    name = module_name(torch.__version__, torch_npu.__version__)
    try:
        _loaded = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"{name} is not part of this installation: onesided was built where torch and torch_npu {_minor(torch.__version__)} "
            "were not installed. Install them, then build onesided without isolation "
            "(pip install --no-build-isolation .)"
        ) from error
    return _loaded
