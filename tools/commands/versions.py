"""Which torch_npu people run, and an environment for each: the real wheels, in a cache that outlives the checkout.

torch of most versions is the CUDA build on PyPI, a gigabyte to fetch; nothing here is fetched by a plain ./do test.
An environment shares all that it can with the others: pure Python packages through one folder, and torch by hard links
where two torch_npu go with the same torch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import cuda_stand_ins
from .problem import Problem
from .stamps import Stamp, digest
from .steps import run_step


@dataclass(frozen=True)
class Version:
    """A torch_npu, the torch it goes with, and whose headers its decorator is built with. A value."""

    torch_npu: str
    torch: str
    decorator: str

    @property
    def folder(self) -> Path:
        """Its environment; there or not."""
        return cache_folder() / self.torch_npu

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The folder that holds torch/ and torch_npu/."""
        return self.folder / "lib" / _PYTHON / "site-packages"


_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"

# Post releases whose headers declare the same allocator share a decorator; the fit is proved when it is loaded.
VERSIONS = (
    Version("2.7.1", "2.7.1", "2.7.1"),
    Version("2.7.1.post2", "2.7.1", "2.7.1.post2"),
    Version("2.8.0", "2.8.0", "2.8.0"),
    Version("2.9.0", "2.9.0", "2.9.0"),
    Version("2.10.0.post4", "2.10.0", "2.10.0.post4"),
    Version("2.10.0.post7", "2.10.0", "2.10.0.post4"),
    Version("2.11.0.post3", "2.11.0", "2.11.0.post3"),
    Version("2.12.0.post3", "2.12.0", "2.12.0.post3"),
    Version("2.13.0", "2.13.0", "2.13.0"),
    Version("2.14.0", "2.14.0", "2.14.0"),
)
#: What CI adds to its own version, in a short form.
SHORT = ("2.9.0", "2.10.0.post4")

# What torch, torch_npu and the tests import; one folder serves all environments.
_COMMON = (
    "numpy==2.2.6; python_version < '3.11'", "numpy==2.4.6; python_version >= '3.11'",
    "sympy", "networkx", "jinja2", "fsspec", "filelock", "typing_extensions", "PyYAML==6.0.4", "typer==0.29.2",
    "rich==15.0.0", "pytest==9.2.0", "expecttest==0.3.0", "setuptools==65.5.0", "packaging==26.4", "psutil", "cloudpickle",
    "decorator", "attrs", "scipy", "pillow", "ray==2.60.0",
)  # fmt: skip


def cache_folder() -> Path:
    """Where the environments are kept: `onesided/versions` in the user's cache (XDG_CACHE_HOME)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onesided" / "versions"


def find(name: str) -> Version:
    """The version with this number of torch_npu."""
    for version in VERSIONS:
        if version.torch_npu == name:
            return version
    raise Problem(f"there is no torch_npu {name!r} in the table: {', '.join(one.torch_npu for one in VERSIONS)}.", 2)


def folders(versions: tuple[Version, ...] = VERSIONS) -> str:
    """What ONESIDED_TORCH_FOLDERS takes: the environments there are, one for each decorator."""
    by_decorator = {one.decorator: one.packages for one in versions if (one.packages / "torch" / "version.py").exists()}
    return ";".join(str(folder) for folder in by_decorator.values())


def _failure(output: str) -> str:
    from .environment import why_pip_failed

    return why_pip_failed(output)


def _pip(title: str, python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-input", "--progress-bar", "off"]
    run_step(title, [*command, "--no-cache-dir", *arguments], failure=_failure)


def _make_venv(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)  # half made: no stamp is in it
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)


def _common() -> Path:
    """The packages that all environments share."""
    folder = cache_folder() / f"common-py{sys.version_info.major}{sys.version_info.minor}"
    stamp, value = Stamp("made", folder), digest(words=_COMMON)
    if not stamp.matches(value):
        _make_venv(folder)
        _pip("Python packages that all versions share", folder / "bin" / "python", *_COMMON)
        stamp.write(value)
    return folder / "lib" / _PYTHON / "site-packages"


def _link_torch(version: Version) -> bool:
    """Hard links to the torch of another environment that has the same; false: there is none."""
    for other in VERSIONS:
        if other is version or other.torch != version.torch or not Stamp("made", other.folder).matches(_value(other)):
            continue
        for part in other.packages.iterdir():
            if part.name in ("torch", "torchgen", "functorch") or part.name.startswith("torch-"):
                shutil.copytree(part, version.packages / part.name, copy_function=os.link, symlinks=True)
        return True
    return False


def _value(version: Version) -> str:
    return digest(words=[sys.version, version.torch_npu, version.torch])


def require(version: Version) -> None:
    """Makes sure of the version's environment. Seconds when it is there; else a gigabyte is fetched."""
    stamp, value = Stamp("made", version.folder), _value(version)
    if stamp.matches(value):
        return
    common = _common()
    _make_venv(version.folder)
    (version.packages / "onesided_common.pth").write_text(f"{common}\n")
    wanted = [f"torch_npu=={version.torch_npu}"]
    if not _link_torch(version):
        wanted.append(f"torch=={version.torch}")
    _pip(f"torch {version.torch}, torch_npu {version.torch_npu}", version.python, "--no-deps", *wanted)
    cuda_stand_ins.require(version.packages / "torch" / "lib")
    stamp.write(value)
