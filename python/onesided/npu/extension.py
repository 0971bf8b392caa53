"""Which build of the decorator belongs to the torch and torch_npu that are running, and the proof that it fits."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from onesided.npu import interface

#: Versions of torch_npu that the project is tested with (./do matrix). Their post releases mostly share a build.
TESTED = ("2.7.1", "2.8.0", "2.9.0", "2.10.0.post4", "2.10.0.post7", "2.11.0.post3", "2.12.0.post3", "2.13.0", "2.14.0")
_PREFIX = "_torch_npu_"
_CLASS = "c10_npu::NPUCachingAllocator::NpuCachingAllocator"
_HOW_TO_BUILD = (
    "To build the decorator for what is installed, have the source of onesided and run `pip install "
    "--no-build-isolation .` with this Python; docs/versions.md says more"
)

_loaded: ModuleType | None = None


def _plain(version: str) -> str:
    return version.split("+")[0]


def _minor(version: str) -> str:
    return ".".join(_plain(version).split(".")[:2])


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def builds() -> list[str]:
    """Versions of torch_npu that this installation carries a build of the decorator for, oldest first."""
    import onesided

    names = [module.name for module in pkgutil.iter_modules(onesided.__path__) if module.name.startswith(_PREFIX)]
    return sorted((name.removeprefix(_PREFIX).replace("_", ".") for name in names), key=_order)


def module_name(build: str) -> str:
    """Name of the extension module that was built for this version of torch_npu."""
    return f"onesided.{_PREFIX}{build.replace('.', '_')}"


def candidates(torch_version: str, torch_npu_version: str, carried: Iterable[str]) -> list[str]:
    """Builds that may fit, the likeliest first: those for the same minor version of torch, the same release before others.

    ImportError: torch and torch_npu do not belong together, or nothing carried is for this minor version.
    """
    torch_minor, npu_minor = _minor(torch_version), _minor(torch_npu_version)
    if torch_minor != npu_minor:
        raise ImportError(
            f"torch {torch_version} and torch_npu {torch_npu_version} do not belong together: torch_npu {npu_minor} is made "
            f"for torch {npu_minor}. Install torch=={npu_minor}.*, or the torch_npu for torch {torch_minor}"
        )
    likely = [build for build in carried if _minor(build) == torch_minor]
    if not likely:
        raise ImportError(
            f"onesided.npu does not know torch_npu {torch_npu_version}: it is tested with {', '.join(TESTED)}, and this "
            f"installation carries the decorator for {', '.join(carried) or 'none'}. Install one of these, or do not use onesided.npu: everything else of onesided works without it. {_HOW_TO_BUILD}"
        )
    here = _plain(torch_npu_version)
    return sorted(likely, key=lambda build: (build != here, [-number for number in _order(build)]))


def misfit(module: Any, torch_npu_folder: Path) -> str | None:
    """Why a build does not fit the torch_npu that is running; None: it fits.

    The wheel exports no name of its allocator's functions, so the proof has three parts: the wheel's own header declares
    the functions and structures that the build saw, in that order; the running allocator's table has as many functions as
    that; and where a function of the table has an exported name, it is the one expected there.
    """
    if module.running_class() != _CLASS:
        return f"another allocator is current already: {module.running_class()}"
    told = interface.difference(module.interface.splitlines(), interface.installed(torch_npu_folder))
    if told:
        return told
    compiled, running = module.functions_compiled(), module.functions_running()
    if compiled != running:
        return f"its allocator's table has {running} functions, its header declares {compiled}"
    return module.misplaced_symbol() or None


def _import(build: str) -> Any:
    try:
        return importlib.import_module(module_name(build))
    except ImportError as error:
        raise ImportError(f"the build for torch_npu {build} does not load: {error}") from error


def _choose(torch_version: str, torch_npu_version: str, folder: Path) -> ModuleType:
    reasons = []
    for build in candidates(torch_version, torch_npu_version, builds()):
        try:
            module = _import(build)
            reason = misfit(module, folder)
        except ImportError as error:
            reason = str(error)
        if reason is None:
            return module
        reasons.append(f"not the build for {build}: {reason}")
    raise ImportError(
        f"no build of the decorator fits this torch_npu {torch_npu_version}, which is not the one that was published under "
        f"this number or a post release with another layout ({'; '.join(reasons)}). Tested: {', '.join(TESTED)}. {_HOW_TO_BUILD}"
    )


def load() -> ModuleType:
    """The extension. ImportError in clear words: torch_npu is missing, unknown, or not what its number says."""
    global _loaded
    if _loaded is not None:
        return _loaded
    try:
        import torch
        import torch_npu
    except (ImportError, OSError, RuntimeError) as error:
        raise ImportError(_why_no_torch_npu(error)) from error
    _loaded = _choose(torch.__version__, torch_npu.__version__, Path(torch_npu.__file__).parent)
    return _loaded


def _why_no_torch_npu(error: BaseException) -> str:
    """Tells a missing package from one that does not load: of another torch, or of another processor."""
    cause = error.__cause__ or error
    text = str(cause)
    if "wrong ELF class" in text or ("cannot open shared object file" in text and "ld-linux" in text):
        return f"torch_npu is here, but built for another processor ({text}): install the wheel for this machine"
    if "undefined symbol" in text:
        return (
            f"torch_npu is here, but does not load ({text}): torch and torch_npu must be of the same version, and an Ascend "
            "runtime of at least that age must be there. pip list | grep torch shows them"
        )
    return (
        f"onesided.npu needs torch and torch_npu ({text}). Without an NPU, run under `onesided sim`, or call "
        "onesided.ascend_sim.enable() before torch is imported"
    )
