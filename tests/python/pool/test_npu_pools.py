"""Aligned pools on the real torch_npu wheel over the simulated runtime. The checks lie in npu/ and run in processes of
their own: the runtime must be there before torch is imported, and allocator settings are read once per process."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import onesided

CHECKS = Path(__file__).parent / "npu"
sys.path.insert(0, str(CHECKS))
import matrix  # noqa: E402

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed in this environment"
)

CONFIGURATIONS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "max_split": "max_split_size_mb:32",
    "gc_roundup": "garbage_collection_threshold:0.8,roundup_power2_divisions:4",
}


def environment(conf: str = "", **more: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTORCH_NPU", "CHECKS_"))}
    package = str(Path(onesided.__file__).parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join([str(CHECKS), package, variables.get("PYTHONPATH", "")])
    if conf:
        variables["PYTORCH_NPU_ALLOC_CONF"] = conf
    return variables | more


def run(arguments: list[str], variables: dict[str, str], timeout: float = 500) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments], env=variables, capture_output=True, text=True, timeout=timeout
    )


def run_checks(name: str, variables: dict[str, str]) -> None:
    child = run(
        [
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "npu_session",
            f"--rootdir={CHECKS}",
            "-c",
            os.devnull,
            str(CHECKS / f"{name}.py"),
        ],
        variables,
    )
    assert child.returncode == 0, f"{child.stdout[-6000:]}\n{child.stderr[-3000:]}"


def test_forms():
    run_checks("checks_forms", environment())


def test_memory():
    run_checks("checks_memory", environment(CHECKS_HBM="1GiB"))


def test_registration():
    run_checks("checks_registration", environment(CHECKS_HBM="1GiB"))


def test_streams():
    run_checks("checks_streams", environment())


def test_frameworks():
    run_checks("checks_frameworks", environment())


def test_handles():
    run_checks("checks_handles", environment())


@pytest.mark.parametrize("row", matrix.DOCUMENTED, ids=lambda row: row[0])
def test_the_documents_say_what_the_matrix_asserts(row):
    document = Path(__file__).resolve().parents[3] / "docs/aligned_pools.md"
    assert f"| {' | '.join(row)} |" in document.read_text()


@pytest.fixture(scope="module")
def matrix_results(tmp_path_factory) -> dict[str, object]:
    results = tmp_path_factory.mktemp("matrix") / "results.json"
    child = run([str(CHECKS / "matrix.py"), str(results)], environment())
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(results.read_text())


@pytest.mark.parametrize("pooling", matrix.all_poolings(), ids=lambda pooling: pooling.name)
@pytest.mark.parametrize("settings", matrix.all_settings(), ids=lambda settings: settings.conf or "no setting")
def test_matrix(settings, pooling, matrix_results):
    result = matrix_results.get(matrix.cell_name(settings, pooling), "was not run, see the cells before it")
    assert result == ("refused" if settings.refused else "ok")


@pytest.mark.parametrize("conf", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_without_an_aligned_pool_the_vendors_code_runs(conf):
    answers = []
    for decorator in ("without", "with"):
        child = run([str(CHECKS / "trace.py"), decorator, "1", "2", "3"], environment(conf))
        assert child.returncode == 0, child.stderr[-3000:]
        answers.append(json.loads(child.stdout.strip().splitlines()[-1]))
    bare, decorated = answers
    assert decorated == bare
    assert all(trace["mallocs"] > 10 for trace in bare)


def test_tensors_and_pools_may_die_in_any_order_at_exit(tmp_path):
    for code in (
        "x = make(); keep = [pool]",
        "import builtins; builtins.x = make(); builtins.pool = pool",
        "x = make(); del pool",
        "import atexit; x = make(); atexit.register(lambda: globals().pop('x'))",
        "import threading; x = make(); side = torch.npu.Stream(); x.record_stream(side); del x",
    ):
        program = (
            "import onesided.ascend_sim; onesided.ascend_sim.enable(); import torch, torch_npu, onesided.npu;"
            "onesided.npu.install(); pool = torch_npu.npu.MemPool(sub_block_alignment=2 << 20)\n"
            "def make():\n"
            "    with torch_npu.npu.use_mem_pool(pool): return torch.ones(1000, device='npu:0')\n"
            f"{code}\n"
        )
        child = run(["-c", program], environment())
        assert child.returncode == 0, f"{code}\n{child.stderr[-3000:]}"
