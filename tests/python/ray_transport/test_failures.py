"""Mistakes and deaths end in an error that names the cause, within seconds, and whoever survives works on. Field case
C07."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray
import torch
from ray.exceptions import GetTimeoutError, RayDirectTransportError

pytestmark = pytest.mark.usefixtures("cluster")

SOON_S = 5.0


@contextmanager
def within(seconds: float = SOON_S) -> Iterator[None]:
    """The block's error is told soon: Ray's own limit is 60 s."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def test_a_receiver_without_tensor_transport_is_told_at_once(pair: tuple[Any, Any]) -> None:
    @ray.remote(num_cpus=0)
    class Forgetful:
        def total(self, tensor: torch.Tensor) -> float:
            return float(tensor.sum())

    forgetful = Forgetful.remote()
    for ready in (False, True):
        ref = pair[0].make.remote(lambda: torch.ones(3))
        if ready:
            ray.get(ref)
        with (
            within(),
            pytest.raises(ValueError, match=r"Forgetful .*without tensor transport.*enable_tensor_transport=True"),
        ):
            ray.get(forgetful.total.remote(ref))
    assert ray.get(forgetful.total.remote(torch.ones(4))) == 4.0, "it works on"


def test_an_object_by_keyword_is_told_at_once(pair: tuple[Any, Any]) -> None:
    owner, reader = pair
    with within(), pytest.raises(ValueError, match="by keyword"):
        reader.echo.remote(value=owner.make.remote(lambda: torch.ones(3)))


@pytest.mark.parametrize("by_keyword", [False, True])
def test_constructors_and_tasks_are_told_at_once(pair: tuple[Any, Any], by_keyword: bool) -> None:
    @ray.remote(num_cpus=0)
    def task(value: Any) -> None:
        pass

    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Made:
        def __init__(self, value: Any) -> None:
            pass

    ref = pair[0].make.remote(lambda: torch.ones(3))
    arguments: dict[str, Any] = {"kwargs": {"value": ref}} if by_keyword else {"args": [ref]}
    for remote, name in ((task, "the task .*task"), (Made, "the constructor of .*Made")):
        with within(), pytest.raises(ValueError, match=f"{name} is given a HIXL object.*methods of actors"):
            remote._remote(**arguments)
    ray.get(task.remote(1))


def test_a_frozen_receiver_thread_does_not_freeze_the_sender(pair: tuple[Any, Any]) -> None:
    """Ray asks every receiver whether it knows a custom transport, on the receiver's system thread; .remote() must not wait
    for that thread, which may be busy."""

    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Busy:
        @ray.method(concurrency_group="_ray_system")
        def hold(self, seconds: float) -> None:
            time.sleep(seconds)

        def total(self, tensor: torch.Tensor) -> float:
            return float(tensor.sum())

    ref = pair[0].make.remote(lambda: torch.ones(3))
    ray.get(ref)
    busy = Busy.remote()
    held = busy.hold.remote(SOON_S)
    totals = [busy.total.remote(ref) for _ in range(3)]
    assert ray.wait([held], timeout=0)[1] == [held], "given away while the thread was busy"
    assert ray.get(totals) == [3.0] * 3


def test_ray_get_gives_up_in_time_and_the_object_is_still_there(pair: tuple[Any, Any]) -> None:
    ref = pair[0].make.remote(lambda: torch.ones(64 << 20, dtype=torch.uint8))
    ray.wait([ref])
    with pytest.raises(GetTimeoutError):
        ray.get(ref, timeout=0)
    assert int(ray.get(ref)[-1]) == 1


def test_metadata_of_another_transport_or_torn_bytes_is_refused(pair: tuple[Any, Any]) -> None:
    from dataclasses import replace

    from ray.experimental.rdt.util import get_tensor_transport_manager

    ref = ray.get(pair[0].put.remote(lambda: torch.ones(10)))[0]
    transport = get_tensor_transport_manager("HIXL")
    metadata = ray._private.worker.global_worker.rdt_manager.get_rdt_metadata(ref.hex()).tensor_transport_meta
    for bytes_ in (b"", b"garbage", metadata.serialized_mem_descs[:-1], metadata.serialized_mem_descs + b"x"):
        with pytest.raises(RayDirectTransportError, match="PARAM_INVALID"):
            transport.fetch_multiple_tensors(ref.hex(), replace(metadata, serialized_mem_descs=bytes_))
    with pytest.raises(RayDirectTransportError, match="tensor 0 has 40 bytes"):
        transport.fetch_multiple_tensors(ref.hex(), metadata, None, [torch.zeros(11)])
    with pytest.raises(TypeError, match="not sent by HIXL"):
        transport.fetch_multiple_tensors(ref.hex(), object())


def test_freed_objects_are_stale_not_wrong(pair: tuple[Any, Any], until: Callable) -> None:
    """Metadata that outlives its object and memory: an error, never other bytes."""
    from ray.experimental.rdt.util import get_tensor_transport_manager

    owner, _ = pair
    ref = ray.get(owner.put.remote(lambda: torch.ones(1000)))[0]
    transport = get_tensor_transport_manager("HIXL")
    metadata = ray._private.worker.global_worker.rdt_manager.get_rdt_metadata(ref.hex()).tensor_transport_meta
    del ref
    until(lambda: ray.get(owner.stats.remote())["memories"] == 0)
    other = ray.get(owner.put.remote(lambda: torch.full((1000,), 7.0)))[0]
    with pytest.raises(RayDirectTransportError, match="STALE"):
        transport.recv_multiple_tensors("gone", metadata)
    assert float(ray.get(other)[0]) == 7.0
