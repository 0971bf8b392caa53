"""Installs the wheel without torch and moves bytes. Run by `./do test --all` in a virtual environment that holds the
wheel, its dependencies and pytest, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import onesided

PACKAGE = Path(onesided.__file__).parent


def test_there_is_no_torch_here() -> None:
    assert importlib.util.find_spec("torch") is None


def test_the_wheel_holds_the_core_and_the_simulated_runtime() -> None:
    assert "site-packages" in PACKAGE.parts
    assert (PACKAGE / "lib" / "libonesided.so").exists()
    assert list(PACKAGE.glob("_core.*.so"))
    assert (PACKAGE / "ascend_sim" / "lib" / "libascendcl.so").exists()
    assert (PACKAGE / "py.typed").exists()


def test_the_command_works() -> None:
    command = Path(sys.executable).with_name("onesided")
    done = subprocess.run([str(command), "doctor", "--json"], capture_output=True, text=True, check=True)
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["onesided core"]["state"] == "ok"
    assert findings["torch"]["text"] == "not installed"


def test_two_engines_move_bytes() -> None:
    with (
        onesided.Engine("127.0.0.1:0") as owner,
        onesided.Engine("127.0.0.1:0") as reader,
        onesided.host_pool(1 << 20) as source,
        onesided.host_pool(1 << 20) as target,
    ):
        source.numpy()[:] = 7
        owner.register_mem(source.addr, source.nbytes, "host")
        reader.register_mem(target.addr, target.nbytes, "host")
        reader.connect(owner.id)
        reader.transfer_sync(owner.id, "READ", [(target.addr, source.addr, 1 << 20)])
        assert (target.numpy() == 7).all()
