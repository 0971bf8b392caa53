"""`onesided sim`, enable() and where the vendor's runtime stands in the way. Nothing here imports torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_sim import libraries_or_skip, sim_environment

from onesided import ascend_sim


def command(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in sim_environment().items() if name != "LD_LIBRARY_PATH"}
    return subprocess.run(
        [sys.executable, "-m", "onesided", "sim", *arguments],
        env={**environment, **settings}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_program_takes_its_place() -> None:
    done = command(
        "--devices", "3", "--hbm", "1GiB", "--", "sh", "-c", "echo $ONESIDED_SIM_DEVICES $ONESIDED_SIM_HBM; exit 7"
    )
    assert done.stdout == f"3 {1 << 30}\n"
    assert done.returncode == 7


def test_arguments_of_the_program_are_its_own() -> None:
    assert command("--", "echo", "--devices", "9", "-x").stdout == "--devices 9 -x\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--devices", "0", "--", "true"], "between 1 and 64"),
        (["--hbm", "lots", "--", "true"], "not a size"),
        (["--hbm", "1MiB", "--", "true"], "at least 2 MiB"),
        (["--", "no-such-program"], "there is no program"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(arguments: list[str], words: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def vendor_folder(tmp_path: Path) -> Path:
    """A folder that holds what could be the vendor's runtime."""
    (tmp_path / "libascendcl.so").write_bytes(b"not really")
    return tmp_path


def test_it_does_not_start_beside_the_vendors_runtime(vendor_folder: Path) -> None:
    done = command("--", "true", LD_LIBRARY_PATH=str(vendor_folder))
    assert done.returncode == 2 and str(vendor_folder) in done.stderr
    code = "import onesided.ascend_sim as s; s.enable()"
    environment = {**sim_environment(), "LD_LIBRARY_PATH": str(vendor_folder)}
    refused = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "RealCannError" in refused.stderr and str(vendor_folder) in refused.stderr


def test_the_simulators_own_libraries_are_not_the_vendors(vendor_folder: Path) -> None:
    own = libraries_or_skip()
    assert ascend_sim.find_real_cann(own, {"LD_LIBRARY_PATH": str(own)}) is None
    home = vendor_folder / "home"
    (home / "lib64").mkdir(parents=True)
    (home / "lib64" / "libascendcl.so").symlink_to(vendor_folder / "libascendcl.so")
    found = ascend_sim.find_real_cann(own, {"ASCEND_HOME_PATH": str(home)})
    assert found == home / "lib64" / "libascendcl.so"


def test_sizes() -> None:
    assert ascend_sim.parse_bytes("8GiB") == 8 << 30
    assert ascend_sim.parse_bytes(4 << 20) == 4 << 20
    for bad in ("", "-3", "1.5GiB", 0, True, "9" * 30, "1K"):
        with pytest.raises(ValueError):
            ascend_sim.parse_bytes(bad)


def test_the_environment_is_complete_and_put_together_once() -> None:
    libraries = str(libraries_or_skip())
    once = ascend_sim.environment(devices=2, base={"LD_LIBRARY_PATH": "/elsewhere"})
    assert once["LD_LIBRARY_PATH"].split(os.pathsep) == [libraries, "/elsewhere"]
    assert ascend_sim.environment(base=once)["LD_LIBRARY_PATH"] == once["LD_LIBRARY_PATH"]
    for part in ("runtime", "compiler"):
        assert Path(once["ASCEND_HOME_PATH"], part).is_dir()
    assert Path(once["ASCEND_OPP_PATH"]).is_dir()


def test_counters_need_a_simulator() -> None:
    with pytest.raises(ascend_sim.SimError):
        ascend_sim.stats(0)
