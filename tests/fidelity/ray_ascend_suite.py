"""Ray-ascend has the other transport that moves npu tensors for Ray. Its tests drive the transport object itself: describe
tensors, receive them, collect the garbage. Here the object is ours.

    python tests/fidelity/ray_ascend_suite.py PATH_OF_A_RAY_ASCEND_CHECKOUT [pytest arguments]

The classes' names and Ray's newer argument names are replaced (`_WORDS` is the whole list). Its tests fake the store that their
transport writes to, and end by asking the fakes which of their functions were called; those lines are left out, for nothing
here calls them, and what stands before them runs against real memory: host tensors, and npu tensors on the simulated
runtime. Tests of classes that exist only there (packing into the store's buffers) are not run. Prints counts; exit code 0 when the
failures are the known ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ray_rdt_suite import summarize

import onesided

_TEST = Path("tests") / "direct_transport" / "test_yr_transport.py"
_WORDS = [
    (r"from ray_ascend\.direct_transport\.yr_tensor_transport import \([^)]*\)", "from adapter import *"),
    (r"\bYRTensorTransport\b(?=\()", "HixlTensorTransport"),
    (r"\bYRTransportMetadata\b", "HixlTransportMetadata"),
    (r"\bYRCommunicatorMetadata\b", "HixlCommunicatorMetadata"),
    (r'== "YR"', '== "HIXL"'),
    (r"\bgpu_object=", "rdt_object="),
    (r"\bds_serialized_keys\b", "serialized_mem_descs"),
    (r"(?<=tensor_transport_meta=meta)\)", ", tensors=[])"),
    # The store, its fakes, and what they were asked.
    (
        r"(?ms)^        with \(\n            patch\(.*?^        \):\n            yield ",
        "        if True:\n            yield ",
    ),
    (r"(?m)^        (mock_client|encoder|decoder|assert decoder)\b.*assert_(not_)?called.*\n", ""),
    (r"(?m)^        assert decoder\..*\n", ""),
]
_KNOWN = {
    "test_can_abort_transport": "expects a transport that cannot abort; this one can",
    "test_actor_has_tensor_transport_success": "expects a task sent to the actor on each call; here nothing is sent",
    "test_actor_has_tensor_transport_failure": "expects a task sent to the actor on each call; here nothing is sent",
}
_ADAPTER = """
import onesided.ascend_sim
onesided.ascend_sim.enable()
import torch_npu
from onesided.ray import HixlCommunicatorMetadata, HixlTensorTransport, HixlTransportMetadata
"""
# Ray never gives two objects one id; these tests do.
_CONFTEST = """
import pytest

@pytest.fixture(autouse=True)
def objects_of_one_test():
    yield
    from onesided.ray import process
    if process.peek() is not None:
        process.current().exchange.release("obj1")
"""


def main(arguments: list[str]) -> int:
    if not arguments:
        raise SystemExit(__doc__)
    source = Path(arguments[0]) / _TEST
    if not source.is_file():
        raise SystemExit(f"there is no {source}; give the path of a checkout of ray-ascend")
    with tempfile.TemporaryDirectory(prefix="onesided-fidelity-") as name:
        folder = Path(name)
        text = source.read_text()
        for pattern, word in _WORDS:
            text = re.sub(pattern, word, text)
        (folder / "test_ray_ascend.py").write_text(text)
        (folder / "adapter.py").write_text(_ADAPTER)
        (folder / "conftest.py").write_text(_CONFTEST)
        package = Path(onesided.__file__).resolve().parent.parent
        paths = os.pathsep.join([str(package), str(folder), os.environ.get("PYTHONPATH", "")])
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        subprocess.run(
            [*command, *arguments[1:], "test_ray_ascend.py"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths},
            check=False,
        )
        return summarize(report, {f"test_ray_ascend::{test}": why for test, why in _KNOWN.items()})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
