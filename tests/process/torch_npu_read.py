"""Reads a tensor of an aligned pool in another process: the owner's program of test and matrix. Prints OK.

Run under `onesided sim`. The child reads what the parent registered and compares every byte.
"""

from __future__ import annotations

import subprocess
import sys

import torch
import torch_npu

import onesided
import onesided.npu

ALIGNMENT = 2 << 20
COUNT = 1 << 20


def pooled(pool, make):
    with torch_npu.npu.use_mem_pool(pool):
        return make()


def main() -> None:
    onesided.npu.install()
    pool = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
    values = torch.arange(COUNT, dtype=torch.int32)
    tensor = pooled(pool, lambda: torch.empty(COUNT, dtype=torch.int32, device="npu"))
    tensor.copy_(values)
    torch.npu.synchronize()
    assert tensor.data_ptr() % ALIGNMENT == 0
    if len(sys.argv) > 1:
        read_from(sys.argv[1], int(sys.argv[2]), pool)
        return
    engine = onesided.Engine("127.0.0.1:0")
    with onesided.npu.register_pool(engine, pool):
        command = [sys.executable, __file__, engine.id, str(tensor.data_ptr())]
        subprocess.run(command, check=True, timeout=120)
    print("OK")


def read_from(peer: str, address: int, pool) -> None:
    target = pooled(pool, lambda: torch.zeros(COUNT, dtype=torch.int32, device="npu"))
    engine = onesided.Engine("127.0.0.1:0")
    with onesided.npu.register_pool(engine, pool):
        engine.connect(peer)
        engine.transfer_sync(peer, "READ", [(target.data_ptr(), address, COUNT * 4)])
    assert torch.equal(target.cpu(), torch.arange(COUNT, dtype=torch.int32)), "the bytes read are not the owner's"


if __name__ == "__main__":
    main()
