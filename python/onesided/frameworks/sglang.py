"""SGLang's names: `zeros_2m_aligned` allocates, `assert_2m_aligned_kv_args` checks before memory is registered.

SGLang's own version allocates 2 MiB more than requested and slices from the first boundary on; here the storage itself
starts on the boundary, and the charge is the length rounded up once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onesided.frameworks.pools import ALIGNMENT, pool_on

if TYPE_CHECKING:
    import torch


def zeros_2m_aligned(
    shape: Sequence[int] | int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> torch.Tensor:
    """torch.zeros whose data starts at a multiple of 2 MiB, on an NPU (default: the current one) or on the CPU.

    ValueError: another device.
    """
    import torch

    where = torch.device("npu" if device is None else device)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    kind = torch.get_default_dtype() if dtype is None else dtype
    if where.type == "cpu":
        from onesided.host_memory import host_pool

        nbytes = max(math.prod(sizes) * kind.itemsize, 1)
        flat = torch.frombuffer(host_pool(nbytes, ALIGNMENT).memoryview(), dtype=torch.uint8)
        return flat[: math.prod(sizes) * kind.itemsize].view(kind).view(sizes)
    if where.type != "npu":
        raise ValueError(f"zeros_2m_aligned: device {str(where)!r}; it is an npu or the cpu")
    import torch_npu

    index = torch_npu.npu.current_device() if where.index is None else where.index
    with torch_npu.npu.use_mem_pool(pool_on(index), device=index):
        return torch.zeros(sizes, dtype=kind, device=torch.device("npu", index))


def assert_2m_aligned_kv_args(ptrs: Sequence[int], lens: Sequence[int]) -> None:
    """Raises AssertionError with the first buffer whose start or length is not a multiple of 2 MiB, which the driver
    would refuse."""
    if len(ptrs) != len(lens):
        raise AssertionError(f"{len(ptrs)} addresses but {len(lens)} lengths")
    for number, (address, nbytes) in enumerate(zip(ptrs, lens, strict=True)):
        for name, value in (("va", address), ("len", nbytes)):
            if value % ALIGNMENT:
                raise AssertionError(
                    f"KV buffer {number}: {name}={value:#x} lies {value % ALIGNMENT:#x} past a 2 MiB boundary; the Ascend "
                    "driver registers only multiples of 2 MiB (503900 at connect). Allocate it with zeros_2m_aligned, or "
                    "inside torch_npu.npu.MemPool(sub_block_alignment=2 << 20)"
                )
