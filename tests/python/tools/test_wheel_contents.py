"""A wheel whose libraries need more than its tag promises is refused, and each reason is named."""

from __future__ import annotations

import platform
import subprocess
import zipfile
from pathlib import Path

import pytest

from commands import torch_wheels, versions, wheel_contents

_LINE = "0000000000000000      DF *UND*  0000000000000000 ({version}) {name}"


@pytest.mark.parametrize(
    "version, name, is_newer",
    [
        ("GLIBC_2.28", "fcntl64", False),
        ("GLIBC_2.34", "pthread_once", True),
        ("GLIBC_2.2.5", "malloc", False),
        ("GLIBCXX_3.4.24", "old", False),
        ("GLIBCXX_3.4.29", "new", True),
        ("CXXABI_1.3.11", "old", False),
        ("CXXABI_1.3.13", "new", True),
        ("GCC_3.0", "_Unwind_Resume", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, name: str, is_newer: bool) -> None:
    found = wheel_contents.newer_symbols(_LINE.format(version=version, name=name))
    assert found == ([f"{name}@{version}"] if is_newer else [])


def _wheel_with(folder: Path, source: str, *options: str) -> Path:
    code, library, wheel = folder / "code.cc", folder / "_core.abi3.so", folder / "some.whl"
    code.write_text(source)
    subprocess.run(["c++", "-shared", "-fPIC", str(code), "-o", str(library), *options], check=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, "onesided/_core.abi3.so")
    return wheel


def test_a_library_that_is_not_there_is_named(tmp_path: Path) -> None:
    wheel = _wheel_with(tmp_path, "int f() { return 0; }", "-Wl,--no-as-needed", "-lcrypto")
    found = wheel_contents.faults(wheel, platform.machine())
    assert any("_core.abi3.so: needs libcrypto" in fault for fault in found)
    assert "it lacks libonesided.so" in found and "it lacks libascendcl.so" in found


def test_another_processor_is_noticed(tmp_path: Path) -> None:
    wheel = _wheel_with(tmp_path, "int f() { return 0; }")
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    assert any("_core.abi3.so" in fault for fault in wheel_contents.faults(wheel, other))


def test_every_decorator_is_in_the_wheel() -> None:
    assert set(torch_wheels.VERSIONS) == {version.decorator for version in versions.VERSIONS}
