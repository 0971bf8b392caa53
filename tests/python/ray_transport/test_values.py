"""What arrives is what was sent, whatever tensors may look like and whichever way Ray passes the object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
import torch

import onesided.ray

pytestmark = pytest.mark.usefixtures("cluster")

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool,
    torch.complex64, torch.complex128,
]  # fmt: skip


def every_dtype() -> dict[str, torch.Tensor]:
    raw = torch.arange(240, dtype=torch.uint8).reshape(3, 80)
    return {str(dtype): (raw % 2).bool() if dtype is torch.bool else raw.view(dtype) for dtype in DTYPES}


def odd_shapes() -> list[Any]:
    base = torch.arange(60.0).reshape(3, 4, 5)
    return [
        torch.tensor(7), torch.empty(0), torch.empty(3, 0, 2), base[1:1], base, base.transpose(0, 2), base[:, ::2],
        base[..., 1], torch.ones(1).expand(5), base[0, 0, 1:4],
    ]  # fmt: skip


def lazy_values() -> list[torch.Tensor]:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    return [numbers.conj(), numbers.conj().imag, torch.ones(3, requires_grad=True) * 2]


def containers() -> dict[str, Any]:
    shared = torch.arange(10.0)
    return {
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "nested": [{"a": (shared, 1)}, [shared[2:5], "text"], None],
        "twice": [shared, shared],
        "overlapping": [shared[:6], shared[4:]],
        "plain": 42,
    }


CASES: list[Callable[[], Any]] = [
    every_dtype, odd_shapes, lazy_values, containers, lambda: [], lambda: "no tensor", lambda: torch.ones(3),
]  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda case: case.__name__)
def test_as_an_argument_of_another_actor(pair: tuple[Any, Any], make: Callable[[], Any]) -> None:
    from actors import by_value

    owner, reader = pair
    assert ray.get(reader.echo.remote(owner.make.remote(make))) == by_value(make())


@pytest.mark.parametrize("make", CASES, ids=lambda case: case.__name__)
def test_by_ray_get_in_the_driver(pair: tuple[Any, Any], make: Callable[[], Any]) -> None:
    from actors import by_value

    assert by_value(ray.get(pair[0].make.remote(make))) == by_value(make())


def test_ray_put_in_the_driver_and_in_an_actor(pair: tuple[Any, Any]) -> None:
    from actors import by_value

    owner, reader = pair
    ref = ray.put(containers(), _tensor_transport="HIXL")
    assert ray.get(reader.echo.remote(ref)) == by_value(containers())
    borrowed = ray.get(owner.put.remote(odd_shapes))
    assert ray.get(reader.get.remote(borrowed)) == by_value(odd_shapes())
    assert by_value(ray.get(borrowed[0])) == by_value(odd_shapes())


def test_many_consumers_of_one_object(pair: tuple[Any, Any]) -> None:
    from actors import Reader, by_value

    ref = pair[0].make.remote(every_dtype)
    readers = [pair[1], *[Reader.remote() for _ in range(3)]]
    answers = ray.get([reader.echo.remote(ref) for reader in readers * 3])
    assert answers == [by_value(every_dtype())] * 12


def test_many_objects_in_flight(pair: tuple[Any, Any]) -> None:
    owner, reader = pair
    refs = [owner.make.remote(lambda i=i: torch.full((1000,), float(i))) for i in range(50)]
    sums = ray.get([reader.ask.remote(ref, lambda tensor: float(tensor[-1])) for ref in refs])
    assert sums == [float(i) for i in range(50)]
    assert [float(tensor[0]) for tensor in ray.get(refs)] == sums


def test_a_list_of_ten_thousand_tensors(pair: tuple[Any, Any]) -> None:
    owner, reader = pair
    ref = owner.make.remote(lambda: [torch.full((3,), i, dtype=torch.int32) for i in range(10_000)])
    assert ray.get(reader.ask.remote(ref, lambda tensors: [int(t.sum()) for t in tensors])) == [
        3 * i for i in range(10_000)
    ]


def test_a_third_actor_submits(pair: tuple[Any, Any]) -> None:
    """The ref travels to an actor that passes it on to another one that it did not create."""
    from actors import by_value

    owner, reader = pair

    @ray.remote(num_cpus=0)
    class Broker:
        def relay(self, refs: list[ray.ObjectRef], reader: Any) -> Any:
            # Inside a list: Ray loses the transport of a small borrowed object that is itself an argument.
            return ray.get(reader.get.remote([refs[0]]))

        def order(self, owner: Any, reader: Any) -> Any:
            return ray.get(reader.echo.remote(owner.make.remote(containers)))

    broker = Broker.remote()
    ref = owner.make.remote(containers)
    ray.get(ref)  # Ray refuses to lend an object that does not exist yet
    assert ray.get(broker.relay.remote([ref], reader)) == by_value(containers())
    assert ray.get(broker.order.remote(owner, reader)) == by_value(containers())


def test_named_and_asyncio_actors(pair: tuple[Any, Any]) -> None:
    @onesided.ray.actor(num_cpus=0)
    class Waiter:
        async def total(self, tensor: torch.Tensor) -> float:
            return float(tensor.sum())

    kept = Waiter.options(name="onesided-waiter").remote()
    found = ray.get_actor("onesided-waiter")
    for _ in range(10):
        # One at a time: Ray's asyncio actors can dispatch a task before the receive that it waits for (docs/ray.md).
        assert ray.get(found.total.remote(pair[0].make.remote(lambda: torch.ones(100)))) == 100.0
    del kept


def test_an_actor_found_by_its_name_in_another_process(pair: tuple[Any, Any]) -> None:
    """Ray's handle has forgotten there that the actor has tensor transport."""
    from actors import Owner, Reader, by_value

    kept = [Owner.options(name="source").remote(), Reader.options(name="sink", lifetime="detached").remote()]
    ray.get([actor.pid.remote() for actor in kept])

    @onesided.ray.actor(num_cpus=0)
    class Finder:
        def relay(self) -> Any:
            source, sink = ray.get_actor("source"), ray.get_actor("sink")
            mine = ray.put(torch.arange(5), _tensor_transport="HIXL")
            return ray.get([sink.echo.remote(source.make.remote(containers)), sink.echo.remote(mine)])

    assert ray.get(Finder.remote().relay.remote()) == [by_value(containers()), by_value(torch.arange(5))]
    ray.kill(kept[1])


@pytest.mark.parametrize(
    "settings",
    [
        {"ONESIDED_REMOTE_ENGINE_CACHE_MAXSIZE": "0"},
        {"ONESIDED_RAY_KEEP_REGISTRATIONS": "0"},
        {"ONESIDED_RAY_RECEIVE_POOL": "0", "ONESIDED_RAY_TRANSPORTS": "cma", "ONESIDED_RAY_HOST": "127.0.0.1"},
    ],
    ids=str,
)
def test_settings_do_what_they_say(cluster: None, until: Callable, settings: dict[str, str]) -> None:
    from actors import Owner, Reader

    own = {"runtime_env": {"env_vars": settings}}
    owner, reader = Owner.options(**own).remote(), Reader.options(**own).remote()
    ray.get(owner.keep.remote("w", lambda: [torch.ones(1000) for _ in range(3)]))
    for _ in range(3):
        total = ray.get(reader.ask.remote(owner.give.remote("w"), lambda ts: sum(float(t.sum()) for t in ts)))
        assert total == 3000.0
    there, here = ray.get([owner.stats.remote(), reader.stats.remote()])
    if "ONESIDED_REMOTE_ENGINE_CACHE_MAXSIZE" in settings:
        assert (here["connects"], here["peers"]) == (3, 0)
    else:
        assert (here["connects"], here["peers"]) == (1, 1)
    if "ONESIDED_RAY_RECEIVE_POOL" in settings:
        assert here["receive_pool_bytes"] == 0
        assert here["registrations"] == 9
        assert there["engine_id"].startswith("127.0.0.1:")
        assert [set(moved) for moved in ray.get(reader.call.remote(moved_by_transport))] == [{"cma"}]
    if "ONESIDED_RAY_KEEP_REGISTRATIONS" in settings:
        until(lambda: ray.get(owner.stats.remote())["regions"] == 0)
    else:
        assert (there["registrations"], there["regions"]) == (3, 3)


def moved_by_transport(self: Any) -> list[dict[str, int]]:
    """Bytes by transport, from each engine that is not this process's own."""
    stats = onesided.ray.process.current().engine.stats()
    return [peer["bytes"] for engine_id, peer in stats["peers"].items() if engine_id != stats["id"]]


def test_an_actor_gets_what_it_made_itself(pair: tuple[Any, Any]) -> None:
    """Through the transport (its own engine) when a target is set, else Ray hands out the very tensors."""

    def both_ways(self: Any) -> tuple[bool, bool]:
        from ray.experimental import set_target_for_ref

        tensor = torch.arange(1000)
        ref = ray.put([tensor], _tensor_transport="HIXL")
        same = ray.get(ref)[0].data_ptr() == tensor.data_ptr()
        set_target_for_ref(ref, [torch.zeros(1000, dtype=torch.int64)])
        return same, torch.equal(ray.get(ref)[0], tensor)

    assert ray.get(pair[0].call.remote(both_ways)) == (True, True)


def test_the_object_store_instead(pair: tuple[Any, Any]) -> None:
    from actors import by_value

    assert by_value(ray.get(pair[0].make.remote(containers), _use_object_store=True)) == by_value(containers())
