"""Parts 1 and 2 of the demo, in a separate process: the same buffers as plain npu tensors, in an aligned pool, and
padded manually. `python -m onesided.cli.demo.alignment FILE` writes the results to FILE."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ALIGNMENT = 2 << 20
# A serving engine's buffers: K and V of 24 layers (128 blocks of 128 tokens, 2 heads of 64), and staging buffers.
CACHE_SHAPE, CACHE_COUNT = (128, 128, 2, 64), 48
STAGING_SHAPE, STAGING_COUNT = (1024, 128), 16


@dataclass
class Report:
    """The results of the two parts. Confined to one thread; passed between processes as JSON."""

    tensors: int = 0
    bytes: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)  # (shape, data_ptr) of plain tensors
    misaligned_plain: int = 0
    refusal: dict[str, Any] = field(default_factory=dict)  # vendor_abi.Outcome of the plain tensors
    misaligned_pool: int = 0
    acceptance: dict[str, Any] = field(default_factory=dict)  # vendor_abi.Outcome of the pool's tensors
    reserved_plain_bytes: int = 0
    reserved_pool_bytes: int = 0
    charged_pool_bytes: int = 0
    reserved_workaround_bytes: int = 0
    device: str = ""


def shapes() -> Iterator[tuple[int, ...]]:
    yield from [CACHE_SHAPE] * CACHE_COUNT
    yield from [STAGING_SHAPE] * STAGING_COUNT


def rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def allocate() -> list[torch.Tensor]:
    import torch

    return [torch.zeros(shape, dtype=torch.bfloat16, device="npu:0") for shape in shapes()]


def count_misaligned(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.data_ptr() % ALIGNMENT != 0 for tensor in tensors)


def plain(report: Report) -> None:
    """Part 1: memory from torch_npu's caching allocator, and the result of registering it."""
    import torch

    from onesided.cli.demo import vendor_abi

    tensors = allocate()
    report.tensors, report.bytes = len(tensors), sum(tensor.nbytes for tensor in tensors)
    report.examples = [(str(tuple(tensor.shape)), tensor.data_ptr()) for tensor in tensors[:3]]
    report.misaligned_plain = count_misaligned(tensors)
    report.reserved_plain_bytes = torch.npu.memory_reserved()
    outcome = vendor_abi.register_and_connect([(tensor.data_ptr(), tensor.nbytes) for tensor in tensors])
    report.refusal = dataclasses.asdict(outcome)


def pooled(report: Report) -> None:
    """Part 2: the same allocations inside a pool with sub_block_alignment."""
    import torch_npu

    from onesided.cli.demo import vendor_abi

    pool = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
    with torch_npu.npu.use_mem_pool(pool):
        tensors = allocate()
    report.misaligned_pool = count_misaligned(tensors)
    segments = pool.snapshot()
    report.reserved_pool_bytes = sum(segment["total_size"] for segment in segments)
    report.charged_pool_bytes = sum(segment["allocated_size"] for segment in segments)
    # The whole charged length of a tensor, because the driver requires lengths in multiples of 2 MiB too.
    ranges = [(tensor.data_ptr(), rounded(tensor.nbytes)) for tensor in tensors]
    report.acceptance = dataclasses.asdict(vendor_abi.register_and_connect(ranges))


def padded(report: Report) -> None:
    """The usual workaround: 2 MiB more for each tensor, sliced from the first boundary on."""
    import torch

    torch.npu.empty_cache()
    before = torch.npu.memory_reserved()
    kept = []
    for shape in shapes():
        nbytes = torch.Size(shape).numel() * 2
        storage = torch.zeros(nbytes + ALIGNMENT, dtype=torch.uint8, device="npu:0")
        offset = -storage.data_ptr() % ALIGNMENT
        kept.append(storage[offset : offset + nbytes].view(torch.bfloat16).view(shape))
    if count_misaligned(kept):
        raise RuntimeError("the workaround itself is misaligned")
    report.reserved_workaround_bytes = torch.npu.memory_reserved() - before


def main(path: Path) -> None:
    import onesided.ascend_sim

    onesided.ascend_sim.enable()
    import torch
    import torch_npu  # noqa: F401

    import onesided.npu

    report = Report(device=torch.npu.get_device_name(0))
    plain(report)
    onesided.npu.install()
    pooled(report)
    padded(report)
    path.write_text(json.dumps(dataclasses.asdict(report)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
