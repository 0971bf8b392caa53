"""The simulated Ascend runtime: the unmodified torch_npu wheel on a machine without an NPU.

    import onesided.ascend_sim
    onesided.ascend_sim.enable()       # before torch is imported
    import torch                       # loads torch_npu by itself
    torch.ones(3, device="npu:0")

or, for any program: ``onesided sim -- python train.py``. See docs/ascend_sim.md.
"""

from onesided.ascend_sim.real_cann import RealCannError, find_real_cann
from onesided.ascend_sim.runtime import (
    DeviceStats,
    SimError,
    enable,
    enabled,
    environment,
    library_folder,
    parse_bytes,
    stats,
)

__all__ = [
    "DeviceStats",
    "RealCannError",
    "SimError",
    "enable",
    "enabled",
    "environment",
    "find_real_cann",
    "library_folder",
    "parse_bytes",
    "stats",
]
