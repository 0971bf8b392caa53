"""What a wheel must hold to its tag: no symbol newer than the tag's glibc and libstdc++, no library that the user's machine
would have to bring, and no more than PyPI and a slow line carry."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

# manylinux_2_28 (PEP 600; its libstdc++ is that of gcc 8).
LIMITS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
MOST_BYTES = 60_000_000

_SYSTEM = re.compile(r"^(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-(x86-64|aarch64))\.so\.\d+$")
# They come with the frameworks that the libraries are for, which have loaded them before.
_FRAMEWORK = re.compile(r"^lib(torch_npu|torch_cpu|torch|c10)\.so$")
_VERSIONED = re.compile(r"\*UND\*.*\((GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\)\s+(\S+)")
_NEEDED = re.compile(r"^\s+NEEDED\s+(\S+)$", re.MULTILINE)
_MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine in an ELF file's header


def newer_symbols(table: str) -> list[str]:
    """The undefined symbols of `objdump -T` that are newer than the limits, with their versions."""
    found = []
    for library, version, name in _VERSIONED.findall(table):
        if tuple(map(int, version.split("."))) > LIMITS[library]:
            found.append(f"{name}@{library}_{version}")
    return found


def _faults_of(library: Path, inside: set[str], machine: str) -> list[str]:
    objdump = "objdump" if machine == "x86_64" else f"{machine}-linux-gnu-objdump"
    done = subprocess.run([objdump, "-T", "-p", str(library)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"{objdump} cannot read it: {done.stderr.strip()[:100]}"]
    if int.from_bytes(library.read_bytes()[18:20], "little") != _MACHINES[machine]:
        return [f"it is not for {machine}"]
    faults = [f"needs {symbol}" for symbol in newer_symbols(done.stdout)]
    for name in _NEEDED.findall(done.stdout):
        if name not in inside and not _SYSTEM.match(name) and not _FRAMEWORK.match(name):
            faults.append(f"needs {name}, which neither the wheel nor the system has")
    return faults


def faults(wheel: Path, machine: str) -> list[str]:
    """Everything that is wrong with the wheel, one sentence each; empty: nothing."""
    found = []
    if wheel.stat().st_size > MOST_BYTES:
        found.append(f"it has {wheel.stat().st_size} bytes, the limit is {MOST_BYTES}")
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        libraries = sorted(Path(scratch).rglob("*.so"))
        inside = {library.name for library in libraries}
        for needed in ("libonesided.so", "_core.abi3.so", "libascendcl.so"):
            if needed not in inside:
                found.append(f"it lacks {needed}")
        for library in libraries:
            found += [f"{library.name}: {fault}" for fault in _faults_of(library, inside, machine)]
    return found
