"""A pytest plug-in for the checks in this folder: they need the real torch_npu wheel on the simulated runtime, which must
be there before torch is imported, so they run in processes of their own (test_npu_pools.py starts them)."""

from __future__ import annotations

import gc
import os

import onesided.ascend_sim

# Device memory is shared by the processes of one (simulated) machine; these checks count bytes.
os.environ["ONESIDED_SIM_MACHINE"] = f"checks-{os.getpid()}"
onesided.ascend_sim.enable(devices=2, hbm=os.environ.get("CHECKS_HBM", "8GiB"))

import pytest  # noqa: E402
import torch  # noqa: E402
from upstream_library import Upstream, build_upstream  # noqa: E402

import onesided.npu  # noqa: E402

# Before the checks import from torch_npu, as docs/aligned_pools.md asks.
onesided.npu.install()

A = 2 << 20


@pytest.fixture(scope="session")
def upstream(tmp_path_factory) -> Upstream:
    return build_upstream(tmp_path_factory.mktemp("upstream"))


@pytest.fixture(autouse=True)
def installed():
    """The decorator is there; nothing is left behind."""
    torch.npu.set_device(0)
    onesided.npu.install()
    yield
    gc.collect()
    torch.npu.empty_cache()
    assert onesided.npu.pools() == [], "a check left an aligned pool behind"


def device_used(device: int = 0) -> int:
    """The device's own account of this process, in bytes."""
    return onesided.ascend_sim.stats(device).used_bytes


@pytest.fixture
def capacity() -> int:
    torch.npu.empty_cache()
    return onesided.ascend_sim.stats(0).capacity_bytes


def fill(share: float, capacity: int) -> torch.Tensor:
    return torch.empty(int(capacity * share), dtype=torch.uint8, device="npu:0")
