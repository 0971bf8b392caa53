"""Drop-in replacements for the Python APIs of Mooncake, NIXL and memfabric, over the engine of onesided.

Nothing is replaced unless the program asks: `onesided run --as nixl -- PROGRAM`, the environment variable
ONESIDED_AS that this command sets, or `install("nixl")` before the first import. docs/compat.md lists every call.
"""

from __future__ import annotations

import os
import sys

from onesided.compat import imports

__all__ = ["VARIABLE", "activate", "environment", "install", "parse_names"]

# Comma-separated names of the APIs that this process and its children take from onesided.
VARIABLE = "ONESIDED_AS"


def parse_names(text: str) -> list[str]:
    """The APIs in a comma-separated list. ValueError: an unknown name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in imports.PROVIDED:
            raise ValueError(f"{name!r}: onesided stands in for {', '.join(sorted(imports.PROVIDED))}")
    return list(dict.fromkeys(names))


def activate(names: list[str]) -> None:
    """Makes imports of these APIs in this process use onesided. RuntimeError: one of them was imported already."""
    for name in names:
        for top in imports.PROVIDED[name]:
            module = sys.modules.get(top)
            if module is not None and not imports.is_ours(module):
                raise RuntimeError(
                    f"{top} was imported already, from {getattr(module, '__file__', 'an unknown place')}; "
                    f"call onesided.compat.install({name!r}) before the first import of it"
                )
    imports.add(names)


def environment(names: list[str]) -> dict[str, str]:
    """The variables that make a child process, and its children, take these APIs from onesided."""
    changed = {VARIABLE: ",".join(names)}
    if not imports.startup_file_installed():
        # Without the .pth file of an installed package, Python runs the sitecustomize that it finds on PYTHONPATH.
        paths = [imports.startup_folder(), imports.package_folder()]
        old = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in paths]
        changed["PYTHONPATH"] = os.pathsep.join([*paths, *old])
    return changed


def install(*names: str) -> None:
    """Makes this process and those that it starts take these APIs from onesided: "mooncake", "nixl", "memfabric".

    Call it before the first import of the API. Spawned processes and Ray workers on this machine inherit it through
    the environment. ValueError: an unknown name. RuntimeError: the API was imported already.
    """
    wanted = parse_names(",".join(names))
    if not wanted:
        raise ValueError(f"no name given: onesided stands in for {', '.join(sorted(imports.PROVIDED))}")
    activate(wanted)
    known = parse_names(os.environ.get(VARIABLE, ""))
    os.environ.update(environment([*known, *(name for name in wanted if name not in known)]))
