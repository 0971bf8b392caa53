"""One rank of a program on several simulated NPUs, as torchrun would start it. Every check compares with gloo's result
on the CPU, or with the same model in one process."""

from __future__ import annotations

import copy
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("npu", RANK)
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64)
REDUCTIONS = (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT)


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def collectives(gloo: dist.ProcessGroup) -> None:
    for dtype in TYPES:
        for count in (1, 7, 1000, 100_000):
            x = torch.randint(0, 3, (count,)).to(dtype)
            for op in REDUCTIONS:
                wanted, found = x.clone(), x.to(DEVICE)
                dist.all_reduce(wanted, op, group=gloo)
                dist.all_reduce(found, op)
                assert torch.equal(found.cpu(), wanted), (dtype, count, op)
            parts = [torch.empty_like(x) for _ in range(RANKS)]
            on_device = [part.to(DEVICE) for part in parts]
            dist.all_gather(parts, x, group=gloo)
            dist.all_gather(on_device, x.to(DEVICE))
            assert all(torch.equal(a.cpu(), b) for a, b in zip(on_device, parts, strict=True)), (dtype, count)
    x = torch.arange(RANKS * 5.0, device=DEVICE)
    own = torch.arange(5.0) + 5 * RANK
    y = torch.empty(5, device=DEVICE)
    dist.reduce_scatter(y, list(x.chunk(RANKS)))
    assert y.cpu().equal(own * RANKS)
    dist.scatter(y, list(x.chunk(RANKS)) if RANK == 1 else None, src=1)
    assert y.cpu().equal(own)
    dist.broadcast(y, src=0)
    assert y.cpu().equal(torch.arange(5.0))
    y = x.clone()
    dist.reduce(y, 0)
    assert RANK or y.cpu().equal(torch.arange(RANKS * 5.0) * RANKS)


def all_to_all(gloo: dist.ProcessGroup) -> None:
    sends = [i + 1 for i in range(RANKS)]
    receives = [RANK + 1] * RANKS
    x = torch.arange(float(sum(sends))) + 100 * RANK
    wanted, found = torch.empty(sum(receives)), torch.empty(sum(receives), device=DEVICE)
    dist.all_to_all_single(wanted, x, receives, sends, group=gloo)
    dist.all_to_all_single(found, x.to(DEVICE), receives, sends)
    assert torch.equal(found.cpu(), wanted)


def objects(_: dist.ProcessGroup) -> None:
    everybody: list[object] = [None] * RANKS
    dist.all_gather_object(everybody, {"rank": RANK})
    assert everybody == [{"rank": rank} for rank in range(RANKS)]
    told: list[object] = [f"from {RANK}"]
    dist.broadcast_object_list(told, src=1)
    assert told == ["from 1"]


def pipeline(_: dist.ProcessGroup) -> None:
    received, mine = torch.zeros(100_000, device=DEVICE), torch.full((100_000,), float(RANK), device=DEVICE)
    before, after = (RANK - 1) % RANKS, (RANK + 1) % RANKS
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, received, before)]):
        work.wait()
    assert received.cpu().eq(before).all()
    if RANK == 0:
        dist.send(mine + 7, 1)
    elif RANK == 1:
        dist.recv(received, 0)
        assert received.cpu().eq(7).all()


def groups(_: dist.ProcessGroup) -> None:
    alone = [dist.new_group([rank]) for rank in range(RANKS)]
    pair = dist.new_group([0, 1])
    x = torch.full((3,), RANK + 1.0, device=DEVICE)
    dist.all_reduce(x, group=alone[RANK])
    assert x.cpu().eq(RANK + 1).all()
    if RANK < 2:
        dist.all_reduce(x, group=pair)
        assert x.cpu().eq(3).all()
    dist.destroy_process_group(alone[RANK])


def data_parallel(gloo: dist.ProcessGroup) -> None:
    models = [
        nn.parallel.DistributedDataParallel(_model(), process_group=gloo),
        nn.parallel.DistributedDataParallel(_model().to(DEVICE), device_ids=[RANK]),
    ]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    torch.manual_seed(RANK)
    for _ in range(3):
        x = torch.randn(4, 16)
        for model, optimizer, device in zip(models, optimizers, ("cpu", DEVICE), strict=True):
            _train(model, optimizer, x.to(device))
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(b.detach().cpu(), a.detach())


def fully_sharded(_: dist.ProcessGroup) -> None:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("npu", (RANKS,))
    one, sharded = _model(), _model().to(DEVICE)
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in (one, sharded)]
    torch.manual_seed(7)
    for _ in range(3):
        x = torch.randn(4, 16)
        _train(one, optimizers[0], x)
        _train(sharded, optimizers[1], x.to(DEVICE))
    for a, b in zip(one.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(b.full_tensor().detach().cpu(), a.detach())


def tensor_parallel(_: dist.ProcessGroup) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("npu", (RANKS,))
    one = _model()
    split = parallelize_module(copy.deepcopy(one).to(DEVICE), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(3)
    x = torch.randn(4, 16)
    wanted, found = one(x), split(x.to(DEVICE))
    torch.testing.assert_close(found.cpu(), wanted)
    wanted.sum().backward()
    found.sum().backward()
    torch.testing.assert_close(split[0].weight.grad.full_tensor().cpu(), one[0].weight.grad)


CHECKS = (collectives, all_to_all, objects, pipeline, groups, data_parallel, fully_sharded, tensor_parallel)


def main() -> None:
    torch.npu.set_device(DEVICE)
    dist.init_process_group("hccl")
    gloo = dist.new_group(backend="gloo")
    for check in CHECKS:
        check(gloo)
        if RANK == 0:
            print(f"{check.__name__}: ok", flush=True)
    dist.destroy_process_group()


def killed() -> None:
    """The last rank dies; the others hear of it."""
    torch.npu.set_device(DEVICE)
    dist.init_process_group("hccl")
    x = torch.ones(300_000, device=DEVICE)
    dist.all_reduce(x)
    torch.npu.synchronize()
    if RANK == RANKS - 1:
        os.kill(os.getpid(), 9)
    try:
        dist.all_reduce(x)
        torch.npu.synchronize()
    except RuntimeError as error:
        assert "has died" in str(error), error
        print("heard", flush=True)
        os._exit(0)
    raise AssertionError("an all_reduce without one of its ranks succeeded")


if __name__ == "__main__":
    {"all": main, "killed": killed}[sys.argv[1]]()
