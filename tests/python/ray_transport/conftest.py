"""A Ray cluster costs seconds, so the tests of this folder share one. Its workers find the package and this
folder's actors on their path and do not load torch_npu unless an actor does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is an optional dependency: pip install onesided[ray]")

HERE = Path(__file__).resolve().parent
_WITHOUT_NPU = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "RAY_USAGE_STATS_ENABLED": "0"}

# Imported here, once, so that the setting it needs does not stay for the tests of other folders.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    pytest.importorskip("torch", reason="the transport moves torch tensors: pip install onesided[ray]")


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    import ray

    import onesided

    package = Path(onesided.__file__).resolve().parent.parent
    paths = os.pathsep.join([str(package), str(HERE), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(HERE))
    # Ray's processes keep the environment that they were started with.
    with pytest.MonkeyPatch.context() as settings:
        for name, value in (_WITHOUT_NPU | {"PYTHONPATH": paths}).items():
            settings.setenv(name, value)
        ray.init(
            address="local",
            num_cpus=16,
            resources={"NPU": 4},
            include_dashboard=False,
            object_store_memory=200 << 20,
            logging_level="error",
            log_to_driver=False,
        )
    yield
    ray.shutdown()
    sys.path.remove(str(HERE))


@pytest.fixture(scope="package")
def pair(cluster: None) -> tuple[Any, Any]:
    """An owner and a reader that many tests share: compare their numbers before and after."""
    from actors import Owner, Reader

    return Owner.remote(), Reader.remote()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits for something that Ray does in its own time; fails after 20 s."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it did not come true within 20 s"
            time.sleep(0.02)

    return wait
