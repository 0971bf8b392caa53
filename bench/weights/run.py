"""Runs each case in processes of its own, for each way to move the weights, and compares with a copy's speed."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from onesided import weights

from .layouts import Case, Place, cases


def number_of(name: str) -> float:
    """A value that a parameter is filled with, the same everywhere."""
    return float(sum(map(ord, name)) % 251)


def _local(places: dict[str, Place], fill: bool) -> dict[str, torch.Tensor]:
    return {name: torch.full(size, number_of(name) if fill else -1.0) for name, (_, size) in places.items()}


def _slices(case: Case, places: dict[str, Place], tensors: dict[str, torch.Tensor]) -> dict[str, weights.Slice]:
    return {name: weights.Slice(tensors[name], case.shapes[name], places[name][0]) for name in places}


def _right(tensors: dict[str, torch.Tensor]) -> bool:
    return all(bool((tensor == number_of(name)).all()) for name, tensor in tensors.items())


def _join(folder: str, rank: int, world: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)


def _timed(rounds: int, step: Callable[[], None]) -> list[float]:
    """Of every process the same rounds, from a barrier to the end of the slowest."""
    seconds = []
    for _ in range(rounds + 1):
        dist.barrier()
        start = time.perf_counter()
        step()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]  # the first one connects and maps


def _ours(rank: int, case: Case, folder: str, rounds: int) -> dict[str, Any] | None:
    publishers = len(case.publishers)
    if rank < publishers:
        places = case.publishers[rank]
        tensors = _local(places, True)
        with weights.publish(_slices(case, places, tensors), rank=rank, world=publishers, at=folder) as publication:
            with publication.update():
                pass
            dist.barrier()
            _timed(rounds, lambda: None)
        return None
    places = case.readers[rank - publishers]
    tensors = _local(places, False)
    dist.barrier()
    with weights.subscribe(_slices(case, places, tensors), at=folder, reader=rank) as subscription:
        moved = []

        def step() -> None:
            subscription.version = None
            moved.append(subscription.update(60))

        seconds = _timed(rounds, step)
        return {
            "seconds": seconds,
            "moved": moved[-1].bytes_moved,
            "extra": 16 * publishers,
            "verified": _right(tensors),
        }


def _gather_and_broadcast(rank: int, case: Case, _folder: str, rounds: int) -> dict[str, Any] | None:
    """Each full tensor on rank 0, then everywhere; readers keep their part."""
    publishers = len(case.publishers)
    places = case.publishers[rank] if rank < publishers else case.readers[rank - publishers]
    tensors = _local(places, rank < publishers)
    largest = max(torch.Size(shape).numel() for shape in case.shapes.values()) * 4

    def step() -> None:
        for name, shape in case.shapes.items():
            full = torch.empty(shape)
            for holder, held in enumerate(case.publishers):
                if name not in held or (holder > 0 and held[name] == case.publishers[0].get(name)):
                    continue
                offsets, sizes = held[name]
                place = tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))
                if rank == 0 and holder == 0:
                    full[place] = tensors[name]
                elif rank == 0:
                    part = torch.empty(sizes)
                    dist.recv(part, holder)
                    full[place] = part
                elif rank == holder:
                    dist.send(tensors[name], 0)
            dist.broadcast(full, 0)
            if rank >= publishers and name in places:
                offsets, sizes = places[name]
                tensors[name].copy_(full[tuple(slice(o, o + s) for o, s in zip(offsets, sizes, strict=True))])

    seconds = _timed(rounds, step)
    if rank < publishers:
        return None
    moved = sum(torch.Size(shape).numel() * 4 for shape in case.shapes.values())
    return {"seconds": seconds, "moved": moved, "extra": largest, "verified": _right(tensors)}


WAYS = {"onesided": _ours, "gather_broadcast": _gather_and_broadcast}


def _process(rank: int, way: str, case: Case, folder: str, rounds: int) -> None:
    _join(folder, rank, len(case.publishers) + len(case.readers))
    found = WAYS[way](rank, case, folder, rounds)
    if found is not None:
        Path(folder, f"result.{rank}").write_text(json.dumps(found))
    dist.destroy_process_group()


def _copy_seconds(nbytes: int, rounds: int) -> list[float]:
    """The same bytes from memory to memory, by torch on two cores."""
    torch.set_num_threads(2)
    source, target = torch.ones(nbytes // 4), torch.zeros(nbytes // 4)
    seconds = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def measure(case: Case, way: str, rounds: int) -> dict[str, Any]:
    needed = sum(4 * torch.Size(size).numel() for reader in case.readers for _, size in reader.values())
    row: dict[str, Any] = {
        "case": case.name,
        "peer": way,
        "model_bytes": sum(4 * torch.Size(shape).numel() for shape in case.shapes.values()),
        "bytes_needed": needed,
    }
    if way == "raw_copy":
        results = [{"seconds": _copy_seconds(needed, rounds), "moved": needed, "extra": 0, "verified": True}]
    else:
        with tempfile.TemporaryDirectory() as folder:
            processes = len(case.publishers) + len(case.readers)
            mp.spawn(_process, (way, case, folder, rounds), nprocs=processes)
            results = [json.loads(path.read_text()) for path in Path(folder).glob("result.*")]
    slowest = [max(of_round) for of_round in zip(*(result["seconds"] for result in results), strict=True)]
    return row | {
        "bytes_moved": sum(result["moved"] for result in results),
        "seconds_median": statistics.median(slowest),
        "seconds_best": min(slowest),
        "extra_bytes": max(result["extra"] for result in results),
        "verified": all(result["verified"] for result in results),
    }


def main(json_file: str | None, *, mib: int, rounds: int) -> int:
    """Moves a model from its publishers to its readers, by one-sided READs and by what is used today, and says what each
    took beside a plain copy of the bytes that the readers need."""
    rows = []
    failed = False
    for case in cases(mib):
        by_way = {}
        for way in ("raw_copy", *WAYS):
            row = by_way[way] = measure(case, way, rounds)
            rows.append(row)
            print(
                f"{case.name:16} {way:18} {row['bytes_needed'] / 2**20:8.0f} MiB needed {row['bytes_moved'] / 2**20:8.0f} "
                f"moved {row['seconds_median']:8.4f} s median {row['seconds_best']:8.4f} best  verified {row['verified']}",
                flush=True,
            )
        ours, copy, gather = by_way["onesided"], by_way["raw_copy"], by_way["gather_broadcast"]
        of_copy = ours["seconds_median"] / copy["seconds_median"]
        of_gather = gather["seconds_median"] / ours["seconds_median"]
        print(
            f"{case.name:16} {of_copy:.2f} of a copy's time (at most 1.25), {of_gather:.1f} times gather and broadcast (at least 5)"
        )
        failed |= ours["bytes_moved"] != ours["bytes_needed"] or not ours["verified"] or of_copy > 1.25 or of_gather < 5
    if json_file:
        Path(json_file).write_text(json.dumps(rows, indent=1) + "\n")
    return int(failed)
