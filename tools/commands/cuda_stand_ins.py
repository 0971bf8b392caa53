"""torch from PyPI is the CUDA build on x86_64: it does not load without gigabytes of NVIDIA's libraries, of which no
function is ever called here. One small library satisfies the loader instead. It is generated from what torch's
own libraries need: their SONAMEs, their versions, their symbols. It holds nothing of NVIDIA's.

A function that is called all the same answers with CUDA's number for "no device" (cudaGetDeviceCount is called by
torch.cuda.is_available()), so that torch says that there is no GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .problem import Problem

LIBRARY = "libonesided_cuda_stand_in.so"
_NO_DEVICE = 100  # cudaErrorNoDevice
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
_VERSION_FILE = re.compile(r"Version: 1\s+File: (\S+)\s+Cnt")
_VERSION_NAME = re.compile(r"Name: (\S+)\s+Flags:")


@dataclass
class Needs:
    """What a folder of libraries needs from libraries that are not there. A value."""

    sonames: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    symbols: set[tuple[str, str]] = field(default_factory=set)  # name, version or ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"{' '.join(command[:2])} failed: {done.stderr.strip()[:200]}; install binutils and g++.")
    return done.stdout


def _is_missing(soname: str, folder: Path) -> bool:
    """Whether neither the folder nor the system has a library of this name."""
    if (folder / soname).exists() and not (folder / soname).is_symlink():
        return False
    listing = _output("/sbin/ldconfig", "-p")
    return f"\t{soname} " not in listing and not soname.startswith("ld-linux")


def read_needs(folder: Path) -> Needs:
    """Reads the dynamic sections and symbol tables of all libraries of the folder."""
    libraries = [path for path in sorted(folder.glob("*.so*")) if not path.is_symlink() and path.name != LIBRARY]
    needs = Needs()
    defined: set[str] = set()
    wanted: set[tuple[str, str]] = set()
    needed: set[str] = set()
    for library in libraries:
        needed.update(_NEEDED.findall(_output("readelf", "-dW", str(library))))
        for line in _output("nm", "-D", str(library)).splitlines():
            kind, _, rest = line[17:].partition(" ")
            name, _, version = rest.replace("@@", "@").partition("@")
            if name.startswith(("Py", "_Py")):
                continue  # the interpreter's own
            if kind == "U":
                wanted.add((name, version))
            elif kind not in ("w", "v"):
                defined.add(name)
    needs.sonames = {name for name in needed if _is_missing(name, folder)}
    for library in libraries:
        _read_versions(_output("readelf", "-VW", str(library)), needs)
    system = _system_symbols(needed - needs.sonames, folder)
    for name, version in wanted:
        if version in needs.versions or (not version and name not in defined and name not in system):
            needs.symbols.add((name, version))
    return needs


def _read_versions(listing: str, needs: Needs) -> None:
    file = ""
    for line in listing.splitlines():
        if found := _VERSION_FILE.search(line):
            file = found[1]
        elif (found := _VERSION_NAME.search(line)) and file in needs.sonames:
            needs.versions.add(found[1])


def _system_symbols(sonames: set[str], folder: Path) -> set[str]:
    """What the libraries define that are there: the C and C++ libraries, and the like."""
    names: set[str] = set()
    listing = _output("/sbin/ldconfig", "-p")
    for soname in sonames:
        found = re.search(rf"\t{re.escape(soname)} .*x86-64.* => (\S+)", listing)
        path = found[1] if found else str(folder / soname)
        if Path(path).exists():
            for line in _output("nm", "-D", "--defined-only", path).splitlines():
                names.add(line.split()[-1].partition("@")[0])
    return names


def _assembly(needs: Needs) -> str:
    """One function of two instructions under every name."""
    lines = [".text", ".globl onesided_no_cuda", "onesided_no_cuda:", f"  mov ${_NO_DEVICE}, %eax", "  ret"]
    lines += [".globl onesided_no_cuda_words", "onesided_no_cuda_words:", "  lea words(%rip), %rax", "  ret"]
    for number, (name, version) in enumerate(sorted(needs.symbols)):
        target = "onesided_no_cuda_words" if name.endswith(("ErrorString", "ErrorName")) else "onesided_no_cuda"
        label = f"stand_in_{number}" if version else name
        lines += [f".globl {label}", f".type {label}, @function", f"{label}:", f"  jmp {target}"]
        if version:
            lines.append(f".symver {label}, {name}@{version}")
    lines += [
        ".section .rodata",
        'words: .string "CUDA is not here: this torch runs beside stand-ins of its libraries"',
    ]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def require(folder: Path) -> None:
    """Makes the stand-in for all that the libraries of torch's folder `lib` lack, once. Nothing lacks: does nothing."""
    if (folder / LIBRARY).exists():
        return
    needs = read_needs(folder)
    if not needs.sonames:
        return
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise Problem("the stand-ins for CUDA's libraries are assembled by g++; install it (apt-get install g++).")
    with tempfile.TemporaryDirectory() as scratch:
        source, script, made = Path(scratch, "stand_in.s"), Path(scratch, "versions"), Path(scratch, LIBRARY)
        source.write_text(_assembly(needs))
        script.write_text("".join(f"{version} {{ }};\n" for version in sorted(needs.versions)))
        flags = [f"-Wl,--version-script={script}"] if needs.versions else []
        _output(compiler, "-shared", "-nostdlib", f"-Wl,-soname,{LIBRARY}", *flags, "-o", str(made), str(source))
        for soname in needs.sonames:
            (folder / soname).unlink(missing_ok=True)
            (folder / soname).symlink_to(LIBRARY)
        shutil.copy(made, folder / LIBRARY)  # last: its presence says that all is done
