"""./do wheel: one wheel for each processor that serves Python 3.10 and newer, every torch_npu of torch_wheels.VERSIONS and
every Linux with glibc 2.28, and needs no compiler and no package of the system."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import apt, glibc_stubs, package, roots, torch_wheels, wheel_contents
from .cache import cache_folder, pip_step
from .paths import BUILD, PYTHON, REQUIREMENTS, ROOT, tool
from .problem import Problem
from .stamps import Stamp, digest
from .steps import run_step

MACHINES = ("x86_64", "aarch64")
WHEELS = BUILD / "wheels"


def _tools() -> Path:
    """The environment with ziglang, auditwheel and wheel."""
    environment = cache_folder("wheel", "tools")
    pins = REQUIREMENTS / "wheel.txt"
    stamp = Stamp("complete", environment)
    value = digest(paths=[pins], words=[sys.version])
    if not stamp.matches(value):
        shutil.rmtree(environment, ignore_errors=True)
        run_step(
            "Environment of ./do wheel",
            [sys.executable, "-m", "venv", str(environment)],
            failure=lambda text: text[-200:],
        )
        pip_step("Tools of ./do wheel", environment / "bin" / "python", "install", "--no-input", "-r", pins)
        stamp.write(value)
    return environment


def _compile(machine: str, stubs: Path, torch_versions: Sequence[str]) -> Path:
    """Builds every library for `machine`; the folder they are installed into."""
    folders = [torch_wheels.require(version, machine) for version in torch_versions]
    tree = BUILD / f"wheel-{machine}"
    configure = [
        tool("cmake"), "-S", str(ROOT), "-B", str(tree), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DONESIDED_STABLE_ABI=ON", f"-DONESIDED_GLIBC_STUBS={stubs}", f"-DPython_EXECUTABLE={PYTHON}",
        f"-DONESIDED_TORCH_FOLDERS={';'.join(map(str, folders))}", f"-DONESIDED_BUILD_TORCH_NPU={'ON' if folders else 'OFF'}",
    ]  # fmt: skip
    if machine == "aarch64":
        apt.require(apt.CROSS)
        configure += [
            f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'aarch64.cmake'}",
            f"-DONESIDED_CROSS_ROOT={roots.require('bookworm-arm64')}",
        ]
    environment = package.build_environment()
    run_step(f"Configure the wheel for {machine}", configure, failure=package.why_build_failed, env=environment)
    build = [tool("cmake"), "--build", str(tree), "--target", "onesided_package"]
    run_step(f"Compile for {machine}", build, failure=package.why_build_failed, env=environment)
    staged = tree / "staged"
    shutil.rmtree(staged, ignore_errors=True)
    install = [tool("cmake"), "--install", str(tree), "--component", "python", "--prefix", str(staged)]
    run_step("Collect the libraries", install, failure=package.why_build_failed, env=environment)
    return staged


def _pack(tools: Path, machine: str, staged: Path) -> Path:
    """The package as pip builds it without CMake, with the libraries put in and the tag that they hold to."""
    plain = BUILD / "wheel-plain"
    shutil.rmtree(plain, ignore_errors=True)
    command = [
        str(PYTHON), "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-input", "-w", str(plain),
        "--config-settings=wheel.cmake=false", str(ROOT),
    ]  # fmt: skip
    run_step("Python part of the wheel", command, failure=package.why_build_failed, env=package.build_environment())
    python = str(tools / "bin" / "python")
    wheel = next(plain.glob("onesided-*.whl"))
    run_step(
        "Unpack it", [python, "-m", "wheel", "unpack", "-d", str(plain), str(wheel)], failure=lambda text: text[-200:]
    )
    content = next(path for path in plain.iterdir() if path.is_dir())
    for left_over in content.rglob("*.so"):  # of a build in place
        left_over.unlink()
    shutil.copytree(staged, content, dirs_exist_ok=True)
    facts = next(content.glob("*.dist-info")) / "WHEEL"
    platform = f"manylinux_{glibc_stubs.GLIBC.replace('.', '_')}_{machine}"
    text = re.sub(r"(?m)^Tag: .*$", f"Tag: cp310-abi3-{platform}", facts.read_text())
    facts.write_text(text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"))
    WHEELS.mkdir(parents=True, exist_ok=True)
    for old in WHEELS.glob(f"onesided-*_{machine}.whl"):
        old.unlink()
    run_step(
        "Pack it", [python, "-m", "wheel", "pack", "-d", str(WHEELS), str(content)], failure=lambda text: text[-200:]
    )
    return next(WHEELS.glob(f"onesided-*_{machine}.whl"))


def _check(tools: Path, machine: str, wheel: Path) -> None:
    found = wheel_contents.faults(wheel, machine)
    if found:
        raise Problem(f"{wheel.name} does not hold to its tag: {'; '.join(found[:10])}")
    show = [str(tools / "bin" / "python"), "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(show, capture_output=True, text=True, check=False)
    # The first tag that it prints counts torch's libraries as missing; the second is what the symbols allow.
    allowed = re.search(r'constrains\s+the\s+platform\s+tag\s+to\s+"manylinux_2_(\d+)_' + machine, done.stdout)
    if allowed is None or int(allowed[1]) > int(glibc_stubs.GLIBC.split(".")[1]):
        raise Problem(
            f"auditwheel does not accept {wheel.name}: {' '.join((done.stdout + done.stderr).split())[-600:]}"
        )


def build(machine: str, torch_versions: Sequence[str] = tuple(torch_wheels.VERSIONS)) -> Path:
    """The wheel for `machine`, checked. Problem: what could not be had, built or accepted."""
    tools = _tools()
    stubs = glibc_stubs.require(tools, machine)
    wheel = _pack(tools, machine, _compile(machine, stubs, torch_versions))
    _check(tools, machine, wheel)
    return wheel
