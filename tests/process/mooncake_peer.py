"""A process with one unmodified Mooncake-for-Ascend engine and one registered buffer, driven by JSON lines.

Started on the simulated runtime as `python mooncake_peer.py '{"nbytes": 4096, "memory": "device", "npu": 1}'`. The first
line it prints says who it is, then one line answers each command. "memory": "device" (the runtime's own allocation),
"host" (registered as "cpu:0"), or "pool" (a torch_npu tensor in an aligned pool).
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import numpy as np

_HUGE_ONLY = 1


def answer(**values: object) -> None:
    print(json.dumps(values), flush=True)


def device_memory(npu: int, nbytes: int) -> tuple[int, object]:
    runtime = ctypes.CDLL("libascendcl.so")
    assert runtime.aclrtSetDevice(npu) == 0
    address = ctypes.c_void_p()
    assert runtime.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes), _HUGE_ONLY) == 0
    return address.value or 0, runtime


def pool_memory(npu: int, nbytes: int) -> tuple[int, object]:
    import torch
    import torch_npu

    import onesided.npu

    onesided.npu.install()
    torch.npu.set_device(npu)
    pool = torch_npu.npu.MemPool(sub_block_alignment=2 << 20)
    with torch_npu.npu.use_mem_pool(pool):
        tensor = torch.zeros(nbytes, dtype=torch.uint8, device=f"npu:{npu}")
    torch.npu.synchronize()
    assert tensor.data_ptr() % (2 << 20) == 0
    return tensor.data_ptr(), (pool, tensor)


def noise(nbytes: int, seed: int) -> np.ndarray:
    return np.frombuffer(np.random.default_rng(seed).bytes(nbytes), np.uint8)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    nbytes, npu, kind = wanted["nbytes"], wanted.get("npu", 0), wanted["memory"]
    skew = wanted.get("skew", 0)  # registers this far past the start
    if kind == "host":
        whole = np.zeros(nbytes + skew, np.uint8)
        address, _owner = whole.ctypes.data, whole
    else:
        address, _owner = (pool_memory if kind == "pool" else device_memory)(npu, nbytes + skew)
    address += skew
    # The simulated device's memory can be touched where it lies.
    data = np.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), np.uint8)

    from mooncake.engine import TransferEngine  # after torch: its libunwind must not come first

    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "ascend", "") == 0
    registered = engine.register_memory(address, nbytes)
    answer(name=f"127.0.0.1:{engine.get_rpc_port()}", address=address, registered=registered)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        answer(result=run(engine, data, address, command, arguments))


def run(engine: Any, data: np.ndarray, base: int, command: str, arguments: list[Any]) -> Any:
    if command == "fill":
        offset, nbytes, seed = arguments
        data[offset : offset + nbytes] = noise(nbytes, seed)
        return True
    if command == "holds":
        offset, nbytes, seed = arguments
        return bool(np.array_equal(data[offset : offset + nbytes], noise(nbytes, seed)))
    if command == "transfer":
        operation, remote, items = arguments  # items: [offset here, address there, bytes]
        local = [base + item[0] for item in items]
        move = engine.batch_transfer_sync_write if operation == "WRITE" else engine.batch_transfer_sync_read
        return move(remote, local, [item[1] for item in items], [item[2] for item in items])
    raise ValueError(command)


if __name__ == "__main__":
    main()
