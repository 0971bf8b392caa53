"""Memory is registered once, for as long as it lives, and nothing is left when an object has gone."""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

pytestmark = pytest.mark.usefixtures("cluster")


def test_a_hundred_updates_register_once(pair: tuple[Any, Any]) -> None:
    """Field case C08: 200 tensors, updated in place, sent again and again."""
    owner, reader = pair
    ray.get(owner.keep.remote("w", lambda: {f"layer{i}": torch.zeros(1000) for i in range(200)}))
    after_first: list[dict[str, Any]] = []
    for update in range(1, 101):
        ray.get(owner.call.remote(lambda self: [t.add_(1) for t in self.kept["w"].values()] and None))
        total = ray.get(reader.ask.remote(owner.give.remote("w"), lambda w: sum(float(t.sum()) for t in w.values())))
        assert total == 200_000.0 * update
        now = ray.get([owner.stats.remote(), reader.stats.remote()])
        after_first = after_first or now
    assert [side["registrations"] for side in now] == [side["registrations"] for side in after_first]
    assert now[1]["connects"] == after_first[1]["connects"]
    ray.get(owner.drop.remote("w"))


def test_objects_are_forgotten_on_both_sides(pair: tuple[Any, Any], until: Callable) -> None:
    owner, reader = pair
    until(lambda: ray.get(owner.stats.remote())["objects"] == 0)
    ref = owner.make.remote(lambda: [torch.ones(1000), torch.ones(10, 10).t()])
    ray.get(reader.echo.remote(ref))
    assert ray.get(owner.stats.remote())["objects"] == 1
    del ref
    until(lambda: ray.get(owner.stats.remote())["objects"] == 0)
    until(lambda: ray.get(owner.stored_objects.remote()) == 0)
    until(lambda: ray.get(owner.stats.remote())["memories"] == 0)


def test_freed_memory_is_deregistered_and_its_address_is_new(pair: tuple[Any, Any], until: Callable) -> None:
    """The same address again and again, other bytes and another size each time: never an old description."""
    owner, reader = pair
    for size in (1000, 1000, 500, 2000, 1000):
        ref = owner.make.remote(lambda size=size: torch.full((size,), float(size)))
        assert ray.get(reader.ask.remote(ref, lambda t: (len(t), float(t.sum())))) == (size, float(size) * size)
        del ref
    until(lambda: ray.get(owner.stats.remote())["memories"] == 0)


def test_views_and_numpy_slices_of_one_buffer(pair: tuple[Any, Any]) -> None:
    """Two storages over the same bytes, one around the other: regions must not overlap, yet both are right."""

    def overlapping() -> list[torch.Tensor]:
        import numpy

        buffer = numpy.arange(1000, dtype=numpy.float32)
        return [torch.from_numpy(buffer[100:200]), torch.from_numpy(buffer), torch.from_numpy(buffer[150:])]

    owner, reader = pair
    before = ray.get(owner.stats.remote())["registrations"]
    ref = owner.make.remote(overlapping)
    expected = [float(tensor.sum()) for tensor in overlapping()]
    assert ray.get(reader.ask.remote(ref, lambda ts: [float(t.sum()) for t in ts])) == expected
    assert ray.get(owner.stats.remote())["registrations"] - before == 3, (
        "the slice, what lies before it, what lies behind it"
    )


def test_a_storage_that_was_resized_is_registered_anew(pair: tuple[Any, Any]) -> None:
    owner, reader = pair
    ray.get(owner.keep.remote("t", lambda: torch.ones(10)))
    assert ray.get(reader.ask.remote(owner.give.remote("t"), lambda t: float(t.sum()))) == 10.0

    def resize(self: Any) -> None:
        self.kept["t"].resize_(1_000_000).fill_(2.0)

    ray.get(owner.call.remote(resize))
    assert ray.get(reader.ask.remote(owner.give.remote("t"), lambda t: float(t.sum()))) == 2_000_000.0
    ray.get(owner.drop.remote("t"))


def test_a_failed_object_leaves_nothing_behind(pair: tuple[Any, Any], until: Callable) -> None:
    owner, _ = pair
    until(lambda: ray.get(owner.stats.remote())["objects"] == 0)
    before = ray.get(owner.stored_objects.remote())
    with pytest.raises(ValueError, match=r"tensor 1 .*sparse.*to_dense"):
        ray.get(owner.make.remote(lambda: [torch.ones(3), torch.eye(3).to_sparse()]))
    with pytest.raises(ValueError, match=r"tensor 0 .*on meta\) .*move it to the cpu or an npu"):
        ray.get(owner.make.remote(lambda: torch.empty(3, device="meta")))
    with pytest.raises(ValueError, match=r"tensor 1 .*nested; send tensor.unbind"):
        ray.get(owner.make.remote(lambda: [torch.ones(3, 4).t(), torch.nested.nested_tensor([torch.ones(2)])]))
    with pytest.raises(ValueError, match="is quantized"):
        ray.get(owner.make.remote(lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)))
    assert ray.get(owner.stored_objects.remote()) == before
    assert ray.get(owner.stats.remote())["objects"] == 0


def test_target_buffers_keep_their_identity(pair: tuple[Any, Any]) -> None:
    from ray.experimental import set_target_for_ref

    def into_buffers(self: Any, refs: list[ray.ObjectRef]) -> tuple[bool, float]:
        buffers = [torch.zeros(100), torch.zeros(5, 5)]
        set_target_for_ref(refs[0], buffers)
        got = ray.get(refs[0])
        return all(a is b for a, b in zip(got, buffers, strict=True)), float(buffers[0].sum() + buffers[1].sum())

    owner, reader = pair
    ref = ray.get(owner.put.remote(lambda: [torch.ones(100), torch.ones(5, 5)]))[0]
    assert ray.get(reader.call.remote(lambda self: into_buffers(self, [ref]))) == (True, 125.0)

    buffers = [torch.zeros(100), torch.zeros(5, 4)]
    set_target_for_ref(ref, buffers)
    with pytest.raises(ValueError, match="Shape"):
        ray.get(ref)


def test_target_device(pair: tuple[Any, Any]) -> None:
    from ray.experimental.rdt import set_target_device_for_ref

    ref = ray.get(pair[0].put.remote(lambda: torch.arange(7)))[0]
    set_target_device_for_ref(ref, "cpu")
    assert torch.equal(ray.get(ref), torch.arange(7))
    with pytest.raises(ValueError, match="cuda"):
        set_target_device_for_ref(ref, "cuda:0")


def test_statistics_of_an_object(pair: tuple[Any, Any]) -> None:
    import onesided.ray

    ref = pair[0].make.remote(lambda: [torch.ones(1000), torch.ones(0)])
    ray.get(ref)
    [fetch] = onesided.ray.object_stats(ref)["fetches"]
    assert (fetch["nbytes"], fetch["tensors"], fetch["state"]) == (4000, 2, "DONE")
    assert fetch["engine_id"] == ray.get(pair[0].stats.remote())["engine_id"]
    object_id = ref.hex()
    known = ray.get(pair[0].call.remote(lambda self: onesided.ray.object_stats(object_id)))
    assert (known["published"], known["nbytes"], known["tensors"]) == (True, 4000, 2)


def test_statistics_from_many_threads(pair: tuple[Any, Any]) -> None:
    """T0..T3: fetch and ask | all at once: no count is lost, and asking never fails."""
    import onesided.ray

    ref = pair[0].make.remote(lambda: torch.ones(10))
    ray.get(ref)
    before = onesided.ray.stats()["fetches"]

    def fetch_and_ask() -> None:
        for _ in range(50):
            ray.get(ref)
            onesided.ray.object_stats(ref)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(fetch_and_ask) for _ in range(4)]:
            done.result()
    assert onesided.ray.stats()["fetches"] - before == 200


def test_receive_memory_follows_what_is_used(pair: tuple[Any, Any]) -> None:
    """Objects of many sizes, one after the other and none kept, then none at all."""
    import onesided.ray

    onesided.ray.trim()
    held = onesided.ray.stats()["receive_pool_bytes"]
    for mib in (20, 24, 28, 32, 36, 40):
        ray.get(pair[0].make.remote(lambda mib=mib: torch.ones(mib << 20, dtype=torch.uint8)))
        assert onesided.ray.stats()["receive_pool_bytes"] - held <= 48 << 20
    assert onesided.ray.trim() >= 40 << 20
    assert onesided.ray.stats()["receive_pool_bytes"] <= held


def test_statistics_are_named_in_the_docs(pair: tuple[Any, Any]) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "ray.md").read_text()
    section = text.split("## Statistics")[1].split("\n## ")[0].split("`onesided.ray.object_stats")[0]
    assert set(re.findall(r"`(\w+)`", section)) == set(ray.get(pair[0].stats.remote()))
