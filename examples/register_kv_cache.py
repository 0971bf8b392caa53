"""A whole KV cache in an aligned pool, registered once and read by a peer: what HCCL IPC and Mooncake need, end to end.

    onesided sim -- python examples/register_kv_cache.py      # or on a machine with NPUs: python examples/...

1. Allocate the cache (layers x K and V) inside MemPool(sub_block_alignment=2 MiB).
2. Register the pool with the engine: its segments, each once. Nothing is padded, sliced or asserted by hand.
3. A second engine (here in this process; anywhere on the machine works the same) reads one block and checks it.
"""

from __future__ import annotations

import torch

import onesided
import onesided.npu

onesided.npu.install()

import torch_npu  # noqa: E402

LAYERS, BLOCKS, BLOCK_TOKENS, HEADS, HEAD_DIM = 8, 64, 128, 2, 128


def allocate_cache() -> list[tuple[torch.Tensor, torch.Tensor]]:
    shape = (BLOCKS, BLOCK_TOKENS, HEADS, HEAD_DIM)
    return [
        (
            torch.zeros(shape, dtype=torch.bfloat16, device="npu:0"),
            torch.zeros(shape, dtype=torch.bfloat16, device="npu:0"),
        )
        for _ in range(LAYERS)
    ]


def main() -> None:
    pool = torch_npu.npu.MemPool(sub_block_alignment=2 * 1024 * 1024)
    with torch_npu.npu.use_mem_pool(pool):
        cache = allocate_cache()
        target = torch.zeros(BLOCK_TOKENS, HEADS, HEAD_DIM, dtype=torch.bfloat16, device="npu:0")
    cache[3][1][17].fill_(1.25)
    torch.npu.synchronize()

    with (
        onesided.Engine("127.0.0.1:0") as owner,
        onesided.Engine("127.0.0.1:0") as reader,
        onesided.npu.register_pool(owner, pool) as owned,
        onesided.npu.register_pool(reader, pool),
    ):
        stats = onesided.npu.pool_stats(pool)
        print(
            f"{2 * LAYERS} tensors of {cache[0][0].nbytes >> 20} MiB registered as {owned.segments} segments: "
            f"{stats['reserved_bytes.current'] >> 20} MiB reserved, {stats['allocated_bytes.current'] >> 20} MiB charged"
        )
        reader.connect(owner.id)
        block = cache[3][1][17]
        reader.transfer_sync(owner.id, "READ", [(target.data_ptr(), block.data_ptr(), block.nbytes)])
        if not target.eq(1.25).all().item():
            raise SystemExit("the block that was read is not the block that was written")
        print(f"read {block.nbytes} bytes of layer 3, block 17: checked")


if __name__ == "__main__":
    main()
