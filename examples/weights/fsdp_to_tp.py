"""FSDP2 on four trainers to tensor parallelism on two rollouts, in separate processes, without a gather.

    TORCH_DEVICE_BACKEND_AUTOLOAD=0 python examples/weights/fsdp_to_tp.py --hidden 128 --picture plan.svg

The model has the 290 tensors of Qwen2.5-0.5B (--hidden 896 --vocab 151936 gives its size, 2 GB a side in float32). The
rollouts hold q, k and v in one fused tensor, and gate and up in another, each cut for its rank. Between two updates the
trainers make a step; after each update a rollout compares its weights with the trainers' own full tensors.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from multiprocessing import connection
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard

from onesided import weights

TRAINERS, ROLLOUTS = 4, 2


class Layer(nn.Module):
    def __init__(self, hidden: int, kv: int, inner: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(hidden, hidden), nn.Linear(hidden, kv), nn.Linear(hidden, kv)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.input_norm, self.post_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.input_norm(x)
        q, k, v = self.q_proj(y), self.k_proj(y), self.v_proj(y)
        groups = q.shape[-1] // k.shape[-1]
        y = nn.functional.scaled_dot_product_attention(
            q, k.repeat(1, 1, groups), v.repeat(1, 1, groups), is_causal=True
        )
        x = x + self.o_proj(y)
        y = self.post_norm(x)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))


class Model(nn.Module):
    def __init__(self, layers: int, hidden: int, vocab: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, hidden // 7 if hidden % 7 == 0 else hidden // 4, inner(hidden)) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def inner(hidden: int) -> int:
    return hidden * 38 // 7 // 2 * 2


def rollout_weights(
    shapes: dict[str, torch.Size], rank: int, dtype: torch.dtype
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The fused, sharded tensors of one rollout, and under the trainers' names the slices of them."""
    own: dict[str, torch.Tensor] = {}
    named: dict[str, Any] = {}

    def shard(name: str, dim: int, tensor: torch.Tensor) -> weights.Slice:
        offsets = [0] * len(shapes[name])
        offsets[dim] = rank * (shapes[name][dim] // ROLLOUTS)
        return weights.Slice(tensor, tuple(shapes[name]), tuple(offsets))

    def fuse(target: str, names: list[str]) -> None:
        rows = {name: shapes[name][0] // ROLLOUTS for name in names}
        own[target] = torch.empty(sum(rows.values()), *shapes[names[0]][1:], dtype=dtype)
        named.update({name: shard(name, 0, view) for name, view in weights.fused(own[target], rows).items()})

    for layer in sorted({name.rsplit(".", 2)[0] for name in shapes if "q_proj" in name}):
        for kind in ("weight", "bias"):
            fuse(f"{layer}.qkv.{kind}", [f"{layer}.{part}_proj.{kind}" for part in "qkv"])
        fuse(f"{layer}.gate_up.weight", [f"{layer}.{part}_proj.weight" for part in ("gate", "up")])
    for name, shape in shapes.items():
        if name in named:
            continue
        dim = 1 if "o_proj" in name or "down_proj" in name else 0 if name.startswith("embed") else None
        size = list(shape)
        if dim is not None:
            size[dim] //= ROLLOUTS
        own[name] = torch.empty(size, dtype=dtype)
        named[name] = own[name] if dim is None else shard(name, dim, own[name])
    return own, named


def train(rank: int, port: int, options: argparse.Namespace) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(TRAINERS))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=TRAINERS)
    meeting = dist.TCPStore("127.0.0.1", options.store, is_master=False)
    torch.manual_seed(0)
    model = Model(options.layers, options.hidden, options.vocab)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with weights.publish(model, rank=rank, world=TRAINERS, at=meeting) as publication:
        for version in range(1, options.updates + 1):
            tokens = torch.randint(options.vocab, (2, 8), generator=torch.Generator().manual_seed(version * 10 + rank))
            model(tokens).square().mean().backward()
            with publication.update():
                optimizer.step()
            optimizer.zero_grad()
            publication.verify(model)
            full = {name: value.full_tensor() for name, value in model.state_dict().items()}
            if rank == 0:
                torch.save(full, options.folder + f"/full.{version}")
                meeting.set(f"trained/{version}", "yes")
            for rollout in range(ROLLOUTS):
                meeting.wait([f"read/{version}/{rollout}"])
    dist.destroy_process_group()


def roll_out(rank: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    meeting = dist.TCPStore("127.0.0.1", options.store, is_master=False)
    with torch.device("meta"):
        shapes = {
            name: value.shape
            for name, value in Model(options.layers, options.hidden, options.vocab).state_dict().items()
        }
    dtype = getattr(torch, options.dtype)
    own, named = rollout_weights(shapes, rank, dtype)
    for tensor in own.values():
        tensor.fill_(float("nan"))
    with weights.subscribe(named, at=meeting, reader=rank) as subscription:
        for version in range(1, options.updates + 1):
            update = subscription.update(120, newer_than=version - 1)
            print(f"rollout {rank}: {update}", flush=True)
            meeting.wait([f"trained/{version}"])
            full = torch.load(options.folder + f"/full.{version}", mmap=True)
            for name, value in named.items():
                part = (
                    value
                    if isinstance(value, weights.Slice)
                    else weights.Slice(value, tuple(value.shape), (0,) * value.dim())
                )
                place = tuple(slice(o, o + s) for o, s in zip(part.offsets, part.tensor.shape, strict=True))
                if not torch.equal(part.tensor, full[name][place].to(dtype)):
                    raise SystemExit(f"rollout {rank}: {name} is not version {version}")
            if rank == 0 and version == 1 and options.picture:
                draw(subscription, options.picture)
            meeting.set(f"read/{version}/{rank}", "yes")
    print(f"rollout {rank}: {len(shapes)} tensors of {options.updates} versions are the trainers' own", flush=True)


def draw(subscription: weights.Subscription, path: str) -> None:
    """Who reads what from whom: bytes by rank."""
    from matplotlib import pyplot

    by_rank = dict(sorted(subscription.plan.bytes_from.items()))
    figure, axes = pyplot.subplots(figsize=(6, 2.5))
    axes.barh([f"trainer {rank}" for rank in by_rank], [nbytes / 1e6 for nbytes in by_rank.values()])
    axes.set_xlabel("MB that rollout 0 reads")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--vocab", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--dtype", default="float32", help="of the rollouts; the trainers have float32")
    parser.add_argument("--picture", help="file for a picture of rollout 0's plan")
    parser.add_argument("--folder", required=True, help="for the trainers' full tensors, which the check reads")
    options = parser.parse_args()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    options.store = store.port
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    processes = [context.Process(target=train, args=(rank, port, options)) for rank in range(TRAINERS)]
    processes += [context.Process(target=roll_out, args=(rank, options)) for rank in range(ROLLOUTS)]
    for process in processes:
        process.start()
    failed = False
    while any(process.is_alive() for process in processes) and not failed:
        connection.wait([process.sentinel for process in processes if process.is_alive()])
        failed = any(process.exitcode for process in processes)
    for process in processes:
        if failed:
            process.terminate()
        process.join()
    if failed:
        raise SystemExit(f"processes ended with {[process.exitcode for process in processes]}")


if __name__ == "__main__":
    main()
