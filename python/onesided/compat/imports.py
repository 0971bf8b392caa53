"""The import hook: which module a name of a replaced API leads to. Standard library only; loads nothing by itself."""

from __future__ import annotations

import importlib
import importlib.util
import site
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# By API: the top-level packages that it is imported as.
PROVIDED: dict[str, tuple[str, ...]] = {
    "mooncake": ("mooncake",),
    "nixl": ("nixl", "nixl_cu12", "nixl_cu13"),
    "memfabric": ("memfabric_hybrid",),
}
_NIXL = {
    "": "onesided.compat.nixl",
    "._api": "onesided.compat.nixl._api",
    "._bindings": "onesided.compat.nixl._bindings",
}
# The modules of the replaced packages, and ours behind them.
MODULES: dict[str, str] = {
    "mooncake": "onesided.compat",
    "mooncake.engine": "onesided.compat.mooncake",
    "memfabric_hybrid": "onesided.compat.memfabric",
    **{top + tail: ours for top in PROVIDED["nixl"] for tail, ours in _NIXL.items()},
}
_PTH = "onesided_compat.pth"
_MARK = "__onesided_stands_in__"


def is_ours(module: ModuleType) -> bool:
    """Whether this module is a replacement of ours."""
    return hasattr(module, _MARK)


class _Loader(Loader):
    """Fills a module with the public contents of ours."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # A module of its own under the replaced name: ours keeps its name, package and spec.
        setattr(module, _MARK, self._ours)
        if module.__name__ == "mooncake":
            return
        ours = importlib.import_module(self._ours)
        for name, value in vars(ours).items():
            if not (name.startswith("__") and name.endswith("__") and name != "__getattr__"):
                setattr(module, name, value)
        module.__doc__ = ours.__doc__


class Finder(MetaPathFinder):
    """Answers for the replaced packages before the search path does. Confined to the import lock."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if not any(top in PROVIDED[name] for name in self.names):
            return None
        ours = MODULES.get(fullname)
        if ours is None:
            raise ModuleNotFoundError(
                f"{fullname}: onesided stands in for {top} here and has no such module; docs/compat.md lists what it has",
                name=fullname,
            )
        spec = ModuleSpec(fullname, _Loader(ours), is_package=fullname == top)
        spec.origin = f"onesided ({ours})"
        return spec


_finder = Finder()


def add(names: Iterable[str]) -> None:
    """Replaces these APIs from the next import on."""
    _finder.names.extend(name for name in names if name not in _finder.names)
    if _finder.names and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def package_folder() -> str:
    """The folder that `import onesided` searches."""
    return str(Path(__file__).resolve().parents[2])


def startup_folder() -> str:
    """The folder with the sitecustomize of a package that is used in place."""
    return str(Path(__file__).resolve().parent / "startup")


def startup_file_installed() -> bool:
    """Whether each start of this Python looks at the variable by itself."""
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    return any((Path(folder) / _PTH).is_file() for folder in folders)


def origin_of(top: str) -> str | None:
    """Where an import of this package would lead in this process, or None where it would fail."""
    if top in MODULES and any(top in PROVIDED[name] for name in _finder.names):
        return f"onesided ({MODULES[top]})"
    spec = PathFinder.find_spec(top)
    if spec is None:
        return None
    return spec.origin or (next(iter(spec.submodule_search_locations or []), None))
