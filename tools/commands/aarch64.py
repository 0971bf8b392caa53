"""aarch64 without an aarch64 machine: the wheel is cross-built, and an arm64 Debian under qemu runs the C++ unit tests, the
engine's Python tests and an aligned pool of the real torch_npu on the simulated runtime.

qemu runs one processor's instructions on another; it does not reorder memory as an aarch64 processor may. That part is
tests/weak_memory's."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from . import package, roots, runners, tally, wheel
from .cache import cache_folder, pip_step
from .paths import BUILD, ROOT, tool
from .problem import Problem
from .stamps import Stamp, digest
from .steps import run_step
from .tally import Tally

TORCH_NPU = "2.9.0"
_ROOT = "bookworm-arm64"
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux2014", "manylinux_2_17")
# What torch and torch_npu import; named, because pip would choose their dependencies for the machine that it runs on.
_PURE = ("filelock", "typing-extensions", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "PyYAML")
_PYTHON_TESTS = ("python/test_engine.py", "python/test_descriptor_lists.py", "python/test_registered_objects.py")
_END = "REPORT "


def _site(built: Path) -> Path:
    """A folder with the wheel and what it runs with, unpacked for aarch64."""
    site = cache_folder("wheel", "site-aarch64")
    stamp = Stamp("site-aarch64.complete", cache_folder("wheel"))
    value = digest(paths=[Path(__file__)])
    target: list[str | Path] = [
        "install", "-q", "--no-compile", "--only-binary=:all:", "--python-version", "3.11", "--upgrade", "--target", site,
        *(word for tag in _PLATFORMS for word in ("--platform", f"{tag}_aarch64")),
    ]  # fmt: skip
    python = Path(sys.executable)
    if not stamp.matches(value):
        shutil.rmtree(site, ignore_errors=True)
        pip_step("What the wheel needs, for aarch64", python, *target, built, "pytest")
        frameworks = [f"torch=={TORCH_NPU}", f"torch_npu=={TORCH_NPU}"]
        pip_step(f"torch_npu {TORCH_NPU} for aarch64", python, *target, "--no-deps", *frameworks, *_PURE)
        stamp.write(value)
    pip_step("The wheel itself", python, *target, "--no-deps", built)
    return site


def _report(name: str, output: str) -> list[Path]:
    """Writes the XML reports that a run in the root printed; their files."""
    folder = runners.REPORTS / f"aarch64-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = []
    for index, text in enumerate(output.split(_END)[1:]):
        files.append(folder / f"{index}.xml")
        files[-1].write_text(text.strip())
    return files


def unit_tests() -> Tally:
    """The C++ unit tests, each program under qemu."""
    tree = BUILD / "wheel-aarch64"
    environment = package.build_environment()
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(tree), "-DONESIDED_BUILD_TESTS=ON"]
    run_step("Configure the tests for aarch64", configure, failure=package.why_build_failed, env=environment)
    build = [tool("cmake"), "--build", str(tree), "--target", "onesided_unit_tests"]
    run_step("Compile the tests for aarch64", build, failure=package.why_build_failed, env=environment)
    programs = sorted(path for path in (tree / "src").rglob("onesided_*") if path.is_file() and not path.suffix)
    script = (
        'cd /tmp; for t in "$@"; do timeout 300 $t --gtest_output=xml:/tmp/r.xml > /tmp/log 2>&1 || { echo "FAILED $t"; tail -n 30 /tmp/log; };'
        f" echo '{_END}'; cat /tmp/r.xml || true; rm -f /tmp/r.xml; done"
    )
    inside = [str(Path("/srv/build", path.relative_to(tree))) for path in programs]
    done = roots.run(_ROOT, ["sh", "-c", script, "sh", *inside], show={tree: "/srv/build"})
    print("\n".join(line for line in done.stdout.split("\n") if "<" not in line)[-6000:], flush=True)
    total = Tally()
    for file in _report("unit", done.stdout):
        total += tally.from_pytest(file, 0 if "FAILED" not in file.read_text() else 1)  # both write JUnit's XML
    return total if programs else Tally(failed=1)


def python_tests(site: Path) -> Tally:
    """The engine's Python tests, and a pool of the real torch_npu."""
    tests = [f"/srv/tests/{name}" for name in _PYTHON_TESTS]
    tests.append("/srv/tests/wheel/with_torch_npu/test_empty_system.py")
    script = (
        "cd /tmp; python3 -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=/srv/tests -o pythonpath= --junitxml=/tmp/r.xml"
        f' -k "not ray and not installed and not compiler and not package" "$@"; status=$?; echo "{_END}"; cat /tmp/r.xml; exit $status'
    )
    done = roots.run(
        _ROOT, ["sh", "-c", script, "sh", *tests], show={site: "/srv/site", ROOT / "tests": "/srv/tests"},
        settings={"PYTHONPATH": "/srv/site", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    print(done.stdout.partition(_END)[0][-6000:], done.stderr[-1000:], sep="\n", flush=True)
    files = _report("python", done.stdout)
    return tally.from_pytest(files[0], done.returncode) if files else Tally(failed=1)


def run() -> Tally:
    parts: Sequence[Tally] = ()
    try:
        built = wheel.build("aarch64")
        parts = (python_tests(_site(built)), unit_tests())
    except Problem as problem:
        print(problem)
        return Tally(failed=1)
    return sum(parts, Tally())
