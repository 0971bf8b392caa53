"""An external oracle. Ray's own tests of Ray Direct Transport run with this transport in the place of NIXL, GLOO, NCCL,
CUDA IPC and a transport of a user's: same objects, same aborts, same garbage collection, on host tensors.

    python tests/fidelity/ray_rdt_suite.py PATH_OF_A_RAY_CHECKOUT [pytest arguments]

The tests are read from the checkout, rewritten word by word into a folder that is deleted afterwards (`_FILES` is the
whole list), and run by the installed Ray's workers. Nothing of the checkout is kept. Prints counts, and for each test
that does not pass what it says; docs/ray.md explains those that cannot. A test that does not end within three minutes
fails. Exit code 0 when the failures are the known ones. Ray's tests need tensordict
(`pip install --no-deps tensordict pyvers orjson importlib_metadata zipp`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import onesided


class TestFile(NamedTuple):
    """One file to run. A value."""

    source: str
    name: str
    words: list[tuple[str, str]]


# The device, and its resources: there is none to ask for.
_DEVICE = [
    (r'"cuda"', '"cpu"'),
    (r"num_gpus=[\d.]+, num_cpus=0", "num_cpus=0"),
    (r"num_cpus=0, num_gpus=1", "num_cpus=0"),
    (r"num_gpus=1", "num_cpus=0"),
    (r'\{"num_gpus": \d\}', '{"num_cpus": 4}'),
]
# Collective groups, which one-sided transports do not have.
_GROUPS = [(r"\bcreate_collective_group\((?=[\[a-z])", "(lambda *_, **__: None)(")]

_FILES = [
    TestFile(
        "test_rdt_nixl.py",
        "test_rdt_nixl.py",
        [
            (r'"(nixl|NIXL)"', '"HIXL"'),
            *_DEVICE,
            (r'"nixlBackendError" in exc_str', '("NOT_CONNECTED" in exc_str or "PEER_LOST" in exc_str)'),
        ],
    ),
    TestFile(
        "test_rdt_gloo.py",
        "test_rdt_gloo.py",
        [(r'"(gloo|GLOO|torch_gloo)"', '"HIXL"'), (r"transport GLOO", "transport HIXL"), *_GROUPS],
    ),
    TestFile("test_rdt_nccl.py", "test_rdt_nccl.py", [(r'"nccl"', '"HIXL"'), *_DEVICE, *_GROUPS]),
    TestFile("test_rdt_ipc.py", "test_rdt_ipc.py", [(r'"cuda_ipc"', '"HIXL"'), *_DEVICE]),
    # Once as it is, for a user's own transport must work beside this one; once with this one as the user's.
    TestFile("test_rdt_custom.py", "test_rdt_custom.py", []),
    TestFile(
        "test_rdt_custom.py",
        "test_rdt_custom_replaced.py",
        [
            (r"(?m)^    register_tensor_transport\([^)]*\)", "    rdt_adapter.register_again()"),
            (r"(?m)^import numpy$", "import numpy\nimport torch"),
            (r"(?<=remote\()numpy\.array", "torch.tensor"),
            (r'tensor_transport="shared_memory"', 'tensor_transport="HIXL"'),
        ],
    ),
    # Ray's bookkeeping with transports of its own, under this one's checks.
    TestFile(
        "test_rdt_manager.py",
        "test_rdt_manager.py",
        [(r"target_buffers=None,(?!\s*target_device)", "target_buffers=None, target_device=None,")],  # since Ray 2.57
    ),
]

# What cannot pass, and why.
_NIXL_FIELDS = "reads the fields of NIXL's own cache"
_NIXL_CLASS = "drives NIXL's own class"
_TWO_SIDED = "expects what becomes of a collective group when one side fails; a reader here fails alone, or not at all"
_KNOWN = {
    "test_rdt_nixl::test_put_gc": _NIXL_FIELDS,
    "test_rdt_nixl::test_storage_level_overlapping_views_reference_count": _NIXL_FIELDS,
    "test_rdt_nixl::test_register_deregister_nixl_memory": _NIXL_CLASS,
    "test_rdt_nixl::test_nixl_memory_pool": _NIXL_CLASS,
    "test_rdt_nixl::test_nixl_memory_pool_view_deduplication": _NIXL_CLASS,
    "test_rdt_gloo::test_p2p_errors_before_group_creation": "one-sided transports have no group to forget",
    "test_rdt_gloo::test_intra_rdt_tensor_transfer": "compares a tensor in a list by pytest.approx, which refuses it",
    "test_rdt_gloo::test_trigger_out_of_band_tensor_transfer": "hands GLOO's metadata to the receiver",
    "test_rdt_gloo::test_send_fails": _TWO_SIDED,
    "test_rdt_gloo::test_send_actor_dies_before_sending": _TWO_SIDED,
    "test_rdt_gloo::test_recv_actor_dies": _TWO_SIDED,
    "test_rdt_ipc::test_colocated_actors": "expects both actors to share the memory; here the reader has a copy",
    "test_rdt_ipc::test_different_devices": "expects a refusal; here it works",
    "test_rdt_ipc::test_different_nodes": "expects a refusal; here it works",
}

# What NIXL's tests look into, in this transport's terms. Runs in the driver and in every worker.
_ADAPTER = """
import onesided.ray
from onesided.ray import process
from onesided.ray.transport import HixlTensorTransport as _T

_T._get_num_managed_meta_nixl = lambda self: process.current().exchange.stats()["objects"]

def register_again():
    onesided.ray.register_hixl_tensor_transport(["cpu"])

def set_up():
    pass  # Ray calls it when a worker starts; these actors do not register the transport themselves, the import did
"""

_CONFTEST = """
import os, signal
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import pytest, ray
import rdt_adapter

@pytest.fixture
def ray_start_regular(request):
    options = dict(getattr(request, "param", {}) or {})
    options.setdefault("num_cpus", 4)
    options = {k: v for k, v in options.items() if k in ("num_cpus", "num_gpus", "resources")}
    ray.init(
        address="local", include_dashboard=False, object_store_memory=150 << 20,
        runtime_env={"worker_process_setup_hook": "rdt_adapter.set_up"}, **options,
    )
    yield
    ray.shutdown()

@pytest.fixture
def ray_start_cluster():
    from ray.cluster_utils import Cluster
    cluster = Cluster()
    yield cluster
    ray.shutdown()
    cluster.shutdown()

class OutOfTime(KeyboardInterrupt):
    pass  # Ray lets no other exception out of its waits

def out_of_time(*_):
    raise OutOfTime

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(180)
    try:
        return (yield)
    except OutOfTime as error:
        raise TimeoutError("the test did not end within 180 s") from error
    finally:
        signal.alarm(0)

@pytest.fixture
def propagate_logs():
    import logging
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.propagate = True
    yield
    for logger, value in zip(loggers, before):
        logger.propagate = value
"""


def prepare(checkout: Path, folder: Path) -> list[str]:
    """Writes the rewritten tests; the names of those the checkout has."""
    source = checkout / "python" / "ray" / "tests" / "rdt"
    found = [file for file in _FILES if (source / file.source).is_file()]
    if not found:
        raise SystemExit(f"{source} has no RDT tests; give the path of a checkout of Ray 2.60 or near it")
    for file in found:
        text = (source / file.source).read_text()
        for pattern, word in file.words:
            text = re.sub(pattern, word, text)
        (folder / file.name).write_text("import rdt_adapter\n" + text)
    (folder / "rdt_adapter.py").write_text(_ADAPTER)
    (folder / "conftest.py").write_text(_CONFTEST)
    return [file.name for file in found]


def main(arguments: list[str]) -> int:
    if not arguments:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory(prefix="onesided-fidelity-") as name:
        folder = Path(name)
        files = prepare(Path(arguments[0]), folder)
        package = Path(onesided.__file__).resolve().parent.parent
        paths = [str(package), str(folder), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        report = folder / "report.xml"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                f"--junitxml={report}",
                *arguments[1:],
                *files,
            ],
            cwd=folder,
            env=environment,
            check=False,
        )
        return summarize(report, _KNOWN)


def summarize(report: Path, reasons: dict[str, str]) -> int:
    """Prints what did not pass and the counts of each file; 1 when something failed that is not known to, or passed that is
    known to fail."""
    counts: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = str(case.get("classname")).split(".", 1)[0]
        name = f"{file}::{case.get('name')}"
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        reason = reasons.get(name.split("[")[0])
        failed = "known" if reason else "failed"
        kind = failed if problem is not None else "passed" if skipped is None else "skipped"
        if kind == "passed" and reason:
            print(f"passed   {name}, which is listed as one that cannot: {reason}")
            counts.setdefault(file, Counter())["failed"] += 1
        counts.setdefault(file, Counter())[kind] += 1
        said = (problem if problem is not None else skipped) if kind != "passed" else None
        if said is not None:
            print(f"{kind:<8} {name}: {reason or (said.get('message') or '').splitlines()[0][:160]}")
    for file, kinds in counts.items():
        print(f"{file:<28}", ", ".join(f"{kinds[kind]} {kind}" for kind in ("passed", "known", "skipped", "failed")))
    return 1 if any(kinds["failed"] for kinds in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
