"""The unmodified torch_npu wheel on the simulated runtime."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from run_sim import HERE, passed, run, sim_environment

if importlib.util.find_spec("torch_npu") is None:
    pytest.skip("torch_npu is not installed", allow_module_level=True)

PROGRAMS = HERE / "programs.py"


def test_values_equal_the_cpus() -> None:
    assert " 0 wrong" in passed(HERE / "values.py", timeout=300)


def test_programs_run() -> None:
    names = ["devices", "mlp", "save_and_load", "streams", "allocator", "bytes_reach_other_processes",
             "tensors_cross_processes"]  # fmt: skip
    assert passed(PROGRAMS, *names, timeout=300).splitlines() == [f"{name}: ok" for name in names]


def test_segments_that_grow() -> None:
    passed(PROGRAMS, "expandable", PYTORCH_NPU_ALLOC_CONF="expandable_segments:True")


def test_what_cannot_run_names_itself() -> None:
    passed(PROGRAMS, "nameless_is_never_silent")


def test_delays_change_no_result() -> None:
    passed(PROGRAMS, "mlp", "streams", ONESIDED_SIM_FAULTS="seed=5,delay=1in7:1000")


def test_a_failing_copy_is_an_error_and_not_a_value() -> None:
    code = "import torch; x = torch.ones(4, device='npu'); print(x.cpu())"
    done = run(code, ONESIDED_SIM_FAULTS="fail=aclrtMemcpy@1,fail=aclrtMemcpyAsync@1")
    assert done.returncode != 0 and "ONESIDED_SIM_FAULTS" in done.stderr and "tensor(" not in done.stdout


def python(code: str, **settings: str | None) -> subprocess.CompletedProcess[str]:
    """A process without the simulator in its environment; None takes a variable away."""
    simulated = {"LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH"}
    environment = {name: value for name, value in sim_environment().items() if name not in simulated}
    environment.update({name: value for name, value in settings.items() if value is not None})
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


ENABLE = "import onesided.ascend_sim as s; s.enable(); "
USE = "print(torch.ones(2, device='npu:1').tolist())"


@pytest.mark.parametrize(
    "code",
    [
        ENABLE + "import torch; s.enable(); " + USE,
        ENABLE + "import torch_npu, torch; " + USE,
        "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torch; "
        + ENABLE + "import torch_npu; " + USE,
    ],
    ids=["torch first", "torch_npu first", "torch before the simulator"],
)  # fmt: skip
def test_import_orders_that_work(code: str) -> None:
    done = python(code)
    assert done.returncode == 0 and done.stdout == "[1.0, 1.0]\n", done.stdout + done.stderr


def test_without_a_runtime_torch_says_what_to_do() -> None:
    done = python("import torch")
    assert done.returncode != 0
    assert "Failed to load the backend extension: torch_npu" in done.stderr
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr
    assert (
        python("import torch; print(torch.ones(2).sum().item())", TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout == "2.0\n"
    )


def test_options_cannot_change_later() -> None:
    done = python(ENABLE + "s.enable(devices=5)")
    assert "SimError" in done.stderr and "ONESIDED_SIM_DEVICES" in done.stderr


def test_children_inherit_the_machine(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text("import torch; print(torch.npu.device_count())")
    code = f"import onesided.ascend_sim as s; s.enable(devices=5); import subprocess, sys; subprocess.run([sys.executable, {str(child)!r}])"
    assert python(code).stdout == "5\n"


def test_visible_devices_are_honoured() -> None:
    code = "import torch; print(torch.npu.device_count())"
    assert passed(code, ONESIDED_SIM_DEVICES="4", ASCEND_RT_VISIBLE_DEVICES="3,1,2") == "3\n"
