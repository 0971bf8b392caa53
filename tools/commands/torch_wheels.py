"""Headers and libraries of every torch and torch_npu that the wheel serves, for any processor: unpacked, never imported.
A version that ./do matrix keeps is used from there."""

from __future__ import annotations

import platform
import re
import shutil
import sys
import zipfile
from pathlib import Path

from . import versions
from .cache import cache_folder, pip_step
from .paths import VENV

# torch_npu: torch; one for each decorator that there is.
VERSIONS = {one.decorator: one.torch for one in versions.VERSIONS}
_LIBRARIES = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch_npu/lib/libtorch_npu.so")
_PARTS = ("torch/include/", "torch_npu/include/", "torch/version.py", "torch_npu/version.py", *_LIBRARIES)
_TAGS = ("manylinux_2_28", "manylinux2014", "manylinux_2_17")


def _is_complete(folder: Path) -> bool:
    return all((folder / name).exists() for name in (*_LIBRARIES, "torch/version.py", "torch_npu/version.py"))


def _installed(version: str) -> Path | None:
    """A site-packages of this machine that holds the version."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in (versions.find(version).packages, VENV / "lib" / python / "site-packages"):
        if not _is_complete(folder):
            continue
        stated = re.search(r"__version__ = ['\"]([0-9a-z.]+)", (folder / "torch_npu" / "version.py").read_text())
        if stated and stated[1] == version:
            return folder
    return None


def require(version: str, machine: str) -> Path:
    """A folder with torch/ and torch_npu/ of the version; fetched when it is missing, which is 0.1 to 0.9 GB."""
    if machine == platform.machine() and (installed := _installed(version)):
        return installed
    folder = cache_folder("wheel", "torch", machine) / version
    if _is_complete(folder):
        return folder
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    platforms = [word for tag in _TAGS for word in ("--platform", f"{tag}_{machine}")]
    pip_step(
        f"torch {VERSIONS[version]} and torch_npu {version} for {machine}", Path(sys.executable), "download", "--no-deps",
        "--only-binary=:all:", *platforms, "--python-version", "3.11", "-d", part, f"torch=={VERSIONS[version]}",
        f"torch_npu=={version}",
    )  # fmt: skip
    for wheel in part.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(part, [name for name in archive.namelist() if name.startswith(_PARTS)])
        wheel.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
    return folder
