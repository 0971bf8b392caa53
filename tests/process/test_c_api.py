"""The C interface as it is installed: a C and a Go program build with pkg-config and CMake and run, the library exports
nothing else, and its ABI is the committed one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ABI = ROOT / "src" / "onesided" / "node" / "c_api" / "onesided.abi"


def build_tree() -> Path:
    """The newest build with the C library: ./do test builds "release", a developer perhaps "dev"."""
    trees = [tree for tree in (ROOT / "build").glob("*") if (tree / "src/onesided/libonesided_c.so").exists()]
    trees = [tree for tree in trees if tree.name in ("release", "dev")]
    if not trees:
        pytest.fail("no build has libonesided_c.so: run ./do test, or cmake --build --preset dev --target onesided_c")
    return max(trees, key=lambda tree: (tree / "src/onesided/libonesided_c.so").stat().st_mtime)


def run(*command: str, **settings: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **settings}
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = tmp_path_factory.mktemp("c") / "prefix"
    run("cmake", "--install", str(build_tree()), "--component", "c", "--prefix", str(prefix))
    return prefix


def library_folder(prefix: Path) -> Path:
    return next(prefix.rglob("libonesided_c.so")).parent


def settings(prefix: Path) -> dict[str, str]:
    folder = library_folder(prefix)
    return {"PKG_CONFIG_PATH": str(folder / "pkgconfig"), "LD_LIBRARY_PATH": str(folder)}


def test_the_c_example_builds_from_the_installed_files_and_runs(installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "two_processes"
    folder = library_folder(installed)
    run(
        "cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", str(EXAMPLES / "c" / "two_processes.c"), "-o", str(program),
        f"-I{installed / 'include'}", f"-L{folder}", "-lonesided_c",
    )  # fmt: skip
    assert re.fullmatch(r"read 16777216 bytes from 127\.0\.0\.1:\d+\n", run(str(program), **settings(installed)))


def test_pkg_config_names_the_installed_files(installed: Path) -> None:
    text = next(installed.rglob("onesided.pc")).read_text()
    values = dict(re.findall(r"^(\w+)=(.+)$", text, re.M))
    place = next(installed.rglob("onesided.pc")).parent
    assert Path(values["libdir"].replace("${pcfiledir}", str(place))).resolve() == library_folder(installed).resolve()
    assert Path(values["includedir"].replace("${pcfiledir}", str(place))).resolve() == (installed / "include").resolve()
    assert "-lonesided_c" in text


def test_find_package_finds_it(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(user C)\nfind_package(onesided 0.1 REQUIRED)\n"
        f"add_executable(user {EXAMPLES / 'c' / 'two_processes.c'})\ntarget_link_libraries(user onesided::c)\n"
    )
    run("cmake", "-S", str(tmp_path), "-B", str(tmp_path / "b"), f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", str(tmp_path / "b"))
    assert "read 16777216 bytes" in run(str(tmp_path / "b" / "user"))


@pytest.mark.skipif(
    shutil.which("go") is None or shutil.which("pkg-config") is None,
    reason="Go or pkg-config is not installed: apt-get install golang-go pkg-config",
)
def test_the_go_example_runs(installed: Path, tmp_path: Path) -> None:
    caches = {"GOCACHE": str(tmp_path / "cache"), "GOPATH": str(tmp_path / "path"), "GOFLAGS": "-mod=mod"}
    program = tmp_path / "read"
    done = subprocess.run(
        ["go", "build", "-o", str(program), "."], cwd=EXAMPLES / "go", capture_output=True, text=True, check=False,
        env={**os.environ, **caches, **settings(installed)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = run(str(program), **settings(installed))
    assert re.fullmatch(r"read 16777216 bytes from 127\.0\.0\.1:\d+\n", out)


def test_only_the_interface_is_exported(installed: Path) -> None:
    symbols = run("nm", "-D", "--defined-only", "--format=posix", str(library_folder(installed) / "libonesided_c.so"))
    names = {line.split()[0].split("@")[0] for line in symbols.splitlines()} - {"ONESIDED_1"}
    declared = set(re.findall(r"\b(onesided_\w+)\(", (installed / "include" / "onesided.h").read_text()))
    assert names == declared


@pytest.mark.skipif(shutil.which("abidw") is None, reason="libabigail is not installed: apt-get install abigail-tools")
def test_the_abi_is_the_committed_one(installed: Path, tmp_path: Path) -> None:
    """An addition needs a new description (abidw as below) and a line in CHANGELOG.md; anything else breaks programs."""
    now = tmp_path / "now.abi"
    describe(library_folder(installed) / "libonesided_c.so", installed / "include", now)
    compared = subprocess.run(["abidiff", str(ABI), str(now)], capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stdout + compared.stderr


def describe(library: Path, headers: Path, to: Path) -> None:
    """Writes the ABI of `library`, without names of this machine's folders."""
    run(
        "abidw", "--headers-dir", str(headers), "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs",
        "--drop-private-types", "--exported-interfaces-only", "--out-file", str(to), str(library),
    )  # fmt: skip
