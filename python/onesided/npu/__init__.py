"""Aligned memory pools on an unpatched torch_npu.

    import onesided.npu
    onesided.npu.install()                                            # idempotent; undone by uninstall()

    pool = torch_npu.npu.MemPool(sub_block_alignment=2 << 20)         # or MemPool(allocator.allocator(), ...)
    with torch_npu.npu.use_mem_pool(pool):
        x = torch.zeros(1024, 128, dtype=torch.bfloat16, device="npu:0")
    assert x.data_ptr() % (2 << 20) == 0

    with onesided.npu.register_pool(engine, pool):                    # each segment once, no cost per tensor
        ...

See docs/aligned_pools.md.
"""

from onesided.npu.installing import install, installed, uninstall
from onesided.npu.pools import (
    Subscription,
    memory_snapshot,
    native_segment,
    pool_of,
    pool_segments,
    pool_stats,
    pools,
    subscribe,
    trim,
)
from onesided.npu.registration import NativeRegistration, Registration, register_native, register_pool

__all__ = [
    "NativeRegistration",
    "Registration",
    "Subscription",
    "install",
    "installed",
    "memory_snapshot",
    "native_segment",
    "pool_of",
    "pool_segments",
    "pool_stats",
    "pools",
    "register_native",
    "register_pool",
    "subscribe",
    "trim",
    "uninstall",
]
