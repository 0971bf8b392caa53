"""Root folders of Debian systems to try things in: other releases, other processors, nothing installed but what is named.
Made by debootstrap, kept in the cache; a program that runs in one sees a copy that is thrown away."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import apt
from .cache import cache_folder
from .problem import Problem
from .stamps import Stamp, digest
from .steps import run_step

_MIRROR = "http://deb.debian.org/debian"
_QEMU = Path("/usr/bin/qemu-aarch64-static")
# How the kernel knows a program for aarch64: the ELF header's first 20 bytes and which of their bits count.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"


@dataclass(frozen=True)
class Root:
    """A Debian system. A value."""

    suite: str
    packages: tuple[str, ...]
    architecture: str = "amd64"


ROOTS = {
    "bookworm-amd64": Root("bookworm", ("python3", "python3-venv")),
    "trixie-amd64": Root("trixie", ("python3", "python3-venv")),
    "bookworm-arm64": Root(
        "bookworm", ("python3", "python3-venv", "libpython3-dev", "libssl-dev", "libgtest-dev", "libgmock-dev"), "arm64"
    ),
}


def require(name: str) -> Path:
    """The root folder `name` of ROOTS; about 0.3 GB are fetched when it is missing."""
    root, folder = ROOTS[name], cache_folder("roots") / name
    stamp = Stamp(f"{name}.complete", cache_folder("roots"))
    value = digest(words=[root.suite, root.architecture, *root.packages])
    if stamp.matches(value) and folder.is_dir():
        return folder
    stamp.clear()
    foreign = root.architecture != "amd64"
    apt.require(("debootstrap", *(("qemu-user-static",) if foreign else ())))
    shutil.rmtree(folder, ignore_errors=True)
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--arch={root.architecture}",
        f"--include={','.join(root.packages)}",
    ]
    command += ["--foreign"] if foreign else []
    run_step(f"Debian {name}", [*command, root.suite, str(folder), _MIRROR], failure=_why_not)
    if foreign:
        # Unpacking is all that programs need; configuring would run the other processor's programs.
        unpack = 'for p in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb --fsys-tarfile "$p" | tar -x -C "$1" --keep-directory-symlink || exit 1; done'
        run_step(f"Unpack {name}", ["sh", "-c", unpack, "sh", str(folder)], failure=_why_not)
    stamp.write(value)
    return folder


def _why_not(output: str) -> str:
    last = (output.strip().splitlines() or ["it said nothing"])[-1]
    return f"debootstrap made no root folder: {last}; it needs root and Debian's mirror."


def run(
    name: str, command: Sequence[str], *, show: Mapping[Path, str], settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a copy of the root. `show` names folders of this machine and where they are seen, read-only.

    Everything is undone when the command ends: mounts, written files, the registration of an emulator. The network is
    this machine's.
    """
    root = ROOTS[name]
    folder = require(name)
    lines = [
        "set -e", "scratch=/mnt; mount -t tmpfs -o size=2g tmpfs $scratch; mkdir $scratch/up $scratch/work $scratch/root",
        f"mount -t overlay overlay -o lowerdir={folder},upperdir=$scratch/up,workdir=$scratch/work $scratch/root",
        "root=$scratch/root; mkdir -p $root/proc $root/dev/shm $root/tmp", "mount -t proc proc $root/proc",
        "mount --rbind /dev $root/dev", "mount -t tmpfs -o size=2g tmpfs $root/dev/shm",
    ]  # fmt: skip
    if root.architecture == "arm64":
        # In a user namespace of its own the kernel's list of emulators is private too (Linux 6.7).
        lines += [
            "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc",
            f"printf '%s' ':onesided-aarch64:M::{_MAGIC}:{_MASK}:{_QEMU}:OPF' > /proc/sys/fs/binfmt_misc/register",
        ]
    for source, target in show.items():
        lines.append(
            f"mkdir -p $root{target}; mount --rbind {source} $root{target}; mount -o remount,bind,ro $root{target}"
        )
    words = " ".join(
        f"{key}={value}" for key, value in {"HOME": "/tmp", "PATH": "/usr/bin:/bin", **(settings or {})}.items()
    )
    # A session of its own: the group of a process from outside the namespace has no number that Ray could signal.
    lines.append(f'exec setsid --wait chroot $root /usr/bin/env -i {words} "$@"')
    namespaces = ["--mount", "--pid", "--fork", "--kill-child"]
    if root.architecture == "arm64":
        namespaces += ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *namespaces, "sh", "-c", "\n".join(lines), "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        raise Problem(
            f"no root folder can be entered here ({done.stderr.strip()[:200]}); it needs root and mount namespaces."
        )
    return done
