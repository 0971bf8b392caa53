"""Stand-ins of glibc 2.28's libraries, for the linker. The package ziglang holds, for every glibc and processor, the
list of the symbols that each library had, and writes such stand-ins for itself when it links; here they are taken from
its cache. cmake/PortableLinks.cmake says what they are for."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .cache import cache_folder
from .problem import Problem
from .stamps import Stamp, digest
from .steps import Step

GLIBC = "2.28"
# libutil and libresolv are not among them: nothing here calls them.
_NAMES = ("m", "pthread", "dl", "rt")


def require(tools: Path, machine: str) -> Path:
    """The folder with the stand-ins for `machine` ("x86_64", "aarch64"); `tools` is the environment with ziglang."""
    folder = cache_folder("wheel", f"glibc-{GLIBC}-{machine}")
    stamp = Stamp("complete", folder)
    value = digest(paths=[Path(__file__)])
    if not stamp.matches(value):
        stamp.clear()
        with Step(f"Stand-ins of glibc {GLIBC} for {machine}"), tempfile.TemporaryDirectory() as scratch:
            _make(tools, machine, Path(scratch), folder)
        stamp.write(value)
    return folder


def _make(tools: Path, machine: str, scratch: Path, folder: Path) -> None:
    source = scratch / "empty.c"
    source.write_text("int onesided_nothing(void) { return 0; }\n")
    command = [
        str(tools / "bin" / "python"),
        "-m",
        "ziglang",
        "cc",
        "-target",
        f"{machine}-linux-gnu.{GLIBC}",
        "-shared",
    ]
    command += ["-fPIC", str(source), "-o", str(scratch / "empty.so")]
    settings = {"ZIG_GLOBAL_CACHE_DIR": str(scratch / "cache"), "ZIG_LOCAL_CACHE_DIR": str(scratch / "cache")}
    done = subprocess.run(
        command, env={"PATH": "/usr/bin:/bin", **settings}, capture_output=True, text=True, check=False
    )
    libc = next(scratch.rglob("libc.so.6"), None)
    rest = next(scratch.rglob("libc_nonshared.a"), None)
    if done.returncode != 0 or libc is None or rest is None:
        raise Problem(f"ziglang made no stand-ins of glibc {GLIBC} for {machine}: {done.stderr.strip()[:200]}")
    for library in [*libc.parent.glob("lib*.so.*"), rest]:
        shutil.copy(library, folder)
    for name in _NAMES:
        link = folder / f"lib{name}.so"
        link.unlink(missing_ok=True)
        link.symlink_to(next(folder.glob(f"lib{name}.so.*")).name)
    (folder / "libc.so").write_text("GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( libld.so.2 ) )\n")
