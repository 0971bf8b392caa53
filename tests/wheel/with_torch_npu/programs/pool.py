"""A tensor of an aligned pool, on the simulated runtime, with the real torch_npu."""

import torch
import torch_npu

import onesided.npu

onesided.npu.install()

ALIGNMENT = 2 << 20
pool = torch_npu.npu.MemPool(sub_block_alignment=ALIGNMENT)
with torch_npu.npu.use_mem_pool(pool):
    first = torch.arange(1000, dtype=torch.float32, device="npu:0")
    second = torch.zeros(10, device="npu:0")
assert first.data_ptr() % ALIGNMENT == 0 and second.data_ptr() % ALIGNMENT == 0
assert torch.equal((first + 1).cpu(), torch.arange(1, 1001, dtype=torch.float32))
print(ALIGNMENT, "aligned, equal")
