"""Finds the vendor's runtime, with which the simulator must not be mixed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

RUNTIME_NAME = "libascendcl.so"


class RealCannError(RuntimeError):
    """The vendor's CANN is loaded, or on the library path, in a process that requested the simulator."""


def loaded_runtimes(maps: str = "/proc/self/maps") -> list[Path]:
    """Paths of every libascendcl.so that this process has loaded."""
    try:
        lines = Path(maps).read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if line.endswith("/" + RUNTIME_NAME)}
    return [Path(path) for path in sorted(paths)]


def _places(environment: Mapping[str, str]) -> Iterator[Path]:
    for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / RUNTIME_NAME
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        if home := environment.get(variable):
            yield Path(home) / "lib64" / RUNTIME_NAME
            yield Path(home) / "runtime" / "lib64" / RUNTIME_NAME


def _linker_cache() -> Iterator[Path]:
    for ldconfig in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if Path(ldconfig).exists():
            try:
                listing = subprocess.run(
                    [ldconfig, "-p"], capture_output=True, text=True, timeout=10, check=False
                ).stdout
            except (OSError, subprocess.TimeoutExpired):
                return
            for match in re.finditer(rf"{re.escape(RUNTIME_NAME)}.*=> (\S+)", listing):
                yield Path(match.group(1))
            return


def is_simulator(library: Path) -> bool:
    """True if an existing libascendcl.so is the simulator's, of this installation or of another one."""
    return library.exists() and library.resolve().parent.parts[-3:] == ("onesided", "ascend_sim", "lib")


def find_real_cann(own_folder: Path, environment: Mapping[str, str] | None = None) -> Path | None:
    """The vendor's libascendcl.so that a program would load (loaded already, on the library path, or in the linker's
    cache).

    ``own_folder`` is where the simulator's libraries lie; they do not count.
    """
    environment = os.environ if environment is None else environment
    own = own_folder.resolve()
    for found in [*loaded_runtimes(), *_places(environment), *_linker_cache()]:
        if found.exists() and found.resolve().parent != own and not is_simulator(found):
            return found
    return None
