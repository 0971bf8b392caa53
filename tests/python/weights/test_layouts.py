"""Boxes of every kind of value against what torch itself makes of it, and plans between any two layouts."""

import random
from itertools import pairwise, product

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.placement_types import _StridedShard

from onesided import weights
from onesided.weights.boxes import boxes_of, shard_runs

SEED = 14


@pytest.fixture(scope="module")
def fake_world():
    """This process as every rank of a world in turn: no communication, torch's own arithmetic."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def be(rank: int, world: int) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        torch.distributed.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())

    yield be
    torch.distributed.destroy_process_group()


def paint(full: torch.Tensor, value) -> torch.Tensor:
    """What of `full` the boxes of the value cover, from the local tensors."""
    seen = torch.full_like(full, -1)
    for box in boxes_of({"w": value}):
        place = tuple(slice(o, o + s) for o, s in zip(box.offsets, box.tensor.shape, strict=True))
        assert (seen[place] == -1).all(), "a box over another"
        seen[place] = box.tensor
    return seen


@pytest.mark.parametrize("shape", [(7, 5), (3, 8), (1, 4), (16, 2), (0, 4)])
@pytest.mark.parametrize("mesh_shape", [(4,), (2, 3)])
def test_every_rank_has_what_torch_gave_it_and_together_they_have_all(fake_world, shape, mesh_shape):
    full = torch.arange(shape[0] * shape[1]).reshape(shape)
    world = torch.Size(mesh_shape).numel()
    choices = [Replicate(), Shard(0), Shard(1)]
    for placements in product(choices, repeat=len(mesh_shape)):
        union = torch.full_like(full, -1)
        for rank in range(world):
            fake_world(rank, world)
            mesh = init_device_mesh("cpu", mesh_shape)
            value = distribute_tensor(full, mesh, placements, src_data_rank=None)
            seen = paint(full, value)
            assert ((seen == -1) | (seen == full)).all(), (rank, placements)
            assert int((seen != -1).sum()) == value.to_local().numel()
            union = torch.maximum(union, seen)
        assert torch.equal(union, full), placements


@pytest.mark.parametrize("size", [1, 5, 12, 13])
def test_a_strided_shard_is_cut_as_torch_cuts_it(size):
    values = torch.arange(size)
    for factor, count in product([1, 2, 3], [1, 2, 4]):
        shards, _ = _StridedShard(0, split_factor=factor)._split_tensor(values, count, with_padding=False)
        for place in range(count):
            runs = shard_runs(size, [(count, place, factor)])
            assert [i for start, end in runs for i in range(start, end)] == shards[place].tolist()


def test_partial_is_refused_by_name(fake_world):
    fake_world(0, 2)
    value = torch.distributed.tensor.DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (2,)), [Partial()])
    with pytest.raises(weights.WeightsError, match=r"'w' is .*sum.*mesh dimension 0.*redistribute"):
        list(boxes_of({"w": value}))


def test_a_shard_that_its_placements_contradict_is_refused_by_name(fake_world):
    fake_world(0, 2)
    value = torch.distributed.tensor.DTensor.from_local(
        torch.ones(3), init_device_mesh("cpu", (2,)), [Shard(0)], shape=torch.Size([4]), stride=(1,), run_check=False
    )
    with pytest.raises(weights.WeightsError, match=r"'w'.*shard of \(3,\).*placements give \(2,\).*Slice"):
        list(boxes_of({"w": value}))


def test_what_has_no_boxes_is_refused_by_name():
    for value, why in [
        (torch.ones(3).expand(4, 3), "share memory"),
        (torch.empty(3, device="meta"), "no dense tensor"),
        (weights.Slice(torch.ones(3), (4,), (2,)), "leave dimension 0 of 4"),
        (weights.Slice(torch.ones(3), (4, 1), (2,)), "expected the same number"),
        ("text", "is a str"),
    ]:
        with pytest.raises(weights.WeightsError, match=rf"'w'.*{why}"):
            list(boxes_of({"w": value}))


def test_a_fused_tensor_is_its_parts():
    qkv = torch.arange(32.0).reshape(8, 4)
    parts = weights.fused(qkv, {"q": 4, "k": 2, "v": 2})
    assert [tuple(part.shape) for part in parts.values()] == [(4, 4), (2, 4), (2, 4)]
    assert parts["v"].data_ptr() == qkv[6:].data_ptr()
    with pytest.raises(ValueError, match=r"have 4 elements of dimension 0"):
        weights.fused(qkv, {"q": 4})
    with pytest.raises(ValueError, match=r"3 names for 8 experts"):
        weights.experts(qkv, ["a", "b", "c"])


def cut(size: int, chance: random.Random) -> list[tuple[int, int]]:
    edges = sorted({0, size, *(chance.randint(0, size) for _ in range(chance.randint(0, 3)))})
    return list(pairwise(edges))


@pytest.mark.parametrize("convert", [False, True])
def test_any_layout_to_any_other(convert):
    chance = random.Random(SEED + convert)
    shapes = {f"p{i}": tuple(chance.randint(1, 12) for _ in range(chance.randint(0, 3))) for i in range(12)}
    fulls = {name: torch.randn(shape, generator=torch.Generator().manual_seed(SEED)) for name, shape in shapes.items()}

    def layout(full: torch.Tensor, ranks: int) -> list[list[weights.Slice]]:
        held: list[list[weights.Slice]] = [[] for _ in range(ranks)]
        for box in product(*(cut(size, chance) for size in full.shape)):
            place = tuple(slice(*edges) for edges in box)
            tensor = (
                full[place].clone()
                if chance.random() < 0.7
                else full[place].clone().mT.contiguous().mT
                if full.dim() > 1
                else full[place].clone()
            )
            for rank in chance.sample(range(ranks), chance.randint(1, min(ranks, 2))):
                held[rank].append(weights.Slice(tensor.clone(), tuple(full.shape), tuple(start for start, _ in box)))
        return held

    for _ in range(5):
        held = {name: layout(full, 3) for name, full in fulls.items()}
        wanted = {name: layout(full, 1)[0] for name, full in fulls.items()}
        if convert:
            wanted = {
                name: [
                    weights.Slice(torch.zeros_like(part.tensor, dtype=torch.bfloat16), part.shape, part.offsets)
                    for part in parts
                ]
                for name, parts in wanted.items()
            }
        for parts in wanted.values():
            for part in parts:
                part.tensor.zero_()
        publications = [
            weights.publish({name: of[rank] for name, of in held.items()}, rank=rank, world=3) for rank in range(3)
        ]
        for publication in publications:
            with publication.update(version=41):
                pass
        handles = [publication.handle for publication in publications]
        with weights.subscribe(wanted, at=handles, staging_bytes=1024) as subscription:
            update = subscription.update(20)
            assert update.version == subscription.version == 41
            needed = sum(full.numel() * full.element_size() for full in fulls.values())
            assert update.bytes_needed == update.bytes_moved == needed == sum(update.bytes_from.values())
        for name, parts in wanted.items():
            for part in parts:
                place = tuple(slice(o, o + s) for o, s in zip(part.offsets, part.tensor.shape, strict=True))
                assert torch.equal(part.tensor, fulls[name][place].to(part.tensor.dtype)), name
        for publication in publications:
            publication.close()
