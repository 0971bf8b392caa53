"""Why: an oracle nobody here wrote. Ray's own tests of Ray Direct Transport run with this transport in the place of NIXL
and of GLOO: same objects, same aborts, same garbage collection, on host tensors.

    python tests/fidelity/ray_rdt_suite.py PATH_OF_A_RAY_CHECKOUT [pytest arguments]

The tests are read from the checkout, rewritten word by word into a folder that is deleted afterwards (`_WORDS` is the
whole list), and run by the installed Ray's workers. Nothing of the checkout is kept. Prints counts, and for each test
that does not pass what it says; docs/ray.md explains those that cannot. Exit code 0 when the failures are the known
ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import onesided

_TESTS = ("test_rdt_nixl.py", "test_rdt_gloo.py")

# In the files of the tests: the transport's name, the device, and collective groups, which one-sided transports do not
# have.
_WORDS = {
    "test_rdt_nixl.py": [
        (r'"nixl"', '"HIXL"'),
        (r'"NIXL"', '"HIXL"'),
        (r'"cuda"', '"cpu"'),
        (r"num_gpus=1, num_cpus=0", "num_cpus=0"),
        (r"num_cpus=0, num_gpus=1", "num_cpus=0"),
        (r"num_gpus=1", "num_cpus=0"),
        (r'\{"num_gpus": \d\}', '{"num_cpus": 4}'),
        (r'"nixlBackendError" in exc_str', '"NOT_CONNECTED" in exc_str'),
    ],
    "test_rdt_gloo.py": [
        (r'"gloo"', '"HIXL"'),
        (r'"GLOO"', '"HIXL"'),
        (r'"torch_gloo"', '"HIXL"'),
        (r"transport GLOO", "transport HIXL"),
        (r"\bcreate_collective_group\((?=[\[a-z])", "(lambda *_, **__: None)("),
    ],
}

# What cannot pass, and why.
_KNOWN = {
    "test_put_gc": "reads the fields of NIXL's own cache",
    "test_storage_level_overlapping_views_reference_count": "reads the fields of NIXL's own cache",
    "test_register_deregister_nixl_memory": "drives NIXL's own class",
    "test_nixl_memory_pool": "drives NIXL's own pool",
    "test_nixl_memory_pool_view_deduplication": "drives NIXL's own pool",
    "test_p2p_errors_before_group_creation": "one-sided transports have no group to forget",
    "test_intra_rdt_tensor_transfer": "GLOO's file: compares a tensor inside a list with pytest.approx, which refuses it",
}

# What NIXL's tests look into, in this transport's terms. Runs in the driver and in every worker.
_ADAPTER = """
import onesided.ray
from onesided.ray import process
from onesided.ray.transport import HixlTensorTransport as _T

_T._get_num_managed_meta_nixl = lambda self: process.current().exchange.stats()["objects"]

def set_up():
    pass  # Ray calls it when a worker starts; these actors do not register the transport themselves, the import did
"""

_CONFTEST = """
import os
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
    found = [name for name in _TESTS if (source / name).is_file()]
    if not found:
        raise SystemExit(
            f"{source} has none of {', '.join(_TESTS)}; give the path of a checkout of Ray 2.60 or near it"
        )
    for name in found:
        text = (source / name).read_text()
        for pattern, word in _WORDS.get(name, []):
            text = re.sub(pattern, word, text)
        (folder / name).write_text("import rdt_adapter\n" + text)
    (folder / "rdt_adapter.py").write_text(_ADAPTER)
    (folder / "conftest.py").write_text(_CONFTEST)
    return found


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
        return summarize(report)


def summarize(report: Path) -> int:
    """Prints what did not pass and the counts; 1 when something failed that is not known to."""
    counts = {"passed": 0, "failed": 0, "known": 0, "skipped": 0}
    for case in ElementTree.parse(report).iter("testcase"):
        name = str(case.get("name"))
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        if problem is None and skipped is None:
            counts["passed"] += 1
            continue
        reason = _KNOWN.get(name.split("[")[0])
        kind = "skipped" if problem is None else "known" if reason else "failed"
        counts[kind] += 1
        said = (skipped if problem is None else problem).get("message") or ""
        print(f"{kind:<8} {case.get('classname')}::{name}: {reason or said.splitlines()[0][:160]}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
