"""Processes that die or freeze while bytes are moving. In flight is proved, not hoped for: the owner is frozen when the
first bytes have arrived and the last have not, and only then killed or aborted. Field case C07."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
import torch
from ray.exceptions import RayDirectTransportError

pytestmark = pytest.mark.usefixtures("cluster")

SOON_S = 5.0
NBYTES = 512 << 20


@pytest.fixture
def far_pair(cluster: None) -> tuple[Any, Any]:
    """An owner and a reader of their own that are joined by tcp, as on two hosts: a frozen owner sends nothing."""
    from actors import Owner, Reader

    tcp = {"env_vars": {"ONESIDED_RAY_TRANSPORTS": "tcp"}}
    return Owner.options(runtime_env=tcp).remote(), Reader.options(runtime_env=tcp).remote()


def make_large() -> list[torch.Tensor]:
    return [torch.ones(NBYTES, dtype=torch.uint8)]


def seen(buffer: torch.Tensor) -> torch.Tensor:
    """One byte of each 64 KiB."""
    return buffer[:: 64 << 10]


def freeze_in_the_middle(owner_pid: int, buffer: torch.Tensor, still_running: Callable[[], bool]) -> None:
    """Returns when some bytes have come, others have not, and the owner is stopped."""
    while not seen(buffer).any():
        assert still_running(), "it ended before a byte was seen"
    os.kill(owner_pid, signal.SIGSTOP)
    assert not seen(buffer).all(), "it had arrived before the owner could be stopped"


def test_an_owner_killed_while_its_bytes_are_moving(far_pair: tuple[Any, Any]) -> None:
    """ray.get into a buffer, on a thread of its own; the owner is killed in the middle."""

    def get_while_killing(self: Any, refs: list[ray.ObjectRef], owner_pid: int) -> tuple[str, float]:
        from ray.experimental import set_target_for_ref

        buffer = torch.zeros(NBYTES, dtype=torch.uint8)
        set_target_for_ref(refs[0], [buffer])
        errors: list[Exception] = []
        ended: list[float] = []

        def get() -> None:
            try:
                ray.get(refs[0])
            except Exception as error:
                errors.append(error)
            ended.append(time.monotonic())

        thread = threading.Thread(target=get)
        thread.start()
        freeze_in_the_middle(owner_pid, buffer, thread.is_alive)
        os.kill(owner_pid, signal.SIGKILL)
        killed = time.monotonic()
        thread.join()
        assert not seen(buffer).all(), "nothing came after the owner was gone"
        [error] = errors
        assert isinstance(error, RayDirectTransportError), repr(error)
        return str(error), ended[0] - killed

    from actors import Owner

    owner, reader = far_pair
    refs = ray.get(owner.put.remote(make_large))
    owner_pid = ray.get(owner.pid.remote())
    text, seconds = ray.get(reader.call.remote(lambda self: get_while_killing(self, refs, owner_pid)))
    assert "PEER_LOST" in text
    assert "The source actor may have died" in text
    assert seconds < SOON_S
    assert ray.get(reader.stats.remote())["fetches_failed"] == 1
    survivor = Owner.remote()
    assert ray.get(reader.ask.remote(survivor.make.remote(lambda: torch.ones(10)), lambda t: float(t.sum()))) == 10.0


def test_a_reader_killed_while_bytes_are_moving(far_pair: tuple[Any, Any], until: Callable) -> None:
    """Its owner does not notice: it serves the next reader, and forgets the object when it is asked to."""

    def fetch_and_die(self: Any, refs: list[ray.ObjectRef], owner_pid: int) -> None:
        from ray.experimental.rdt.util import get_tensor_transport_manager

        metadata = ray._private.worker.global_worker.rdt_manager.get_rdt_metadata(refs[0].hex()).tensor_transport_meta
        buffer = torch.zeros(NBYTES, dtype=torch.uint8)
        request = get_tensor_transport_manager("HIXL").fetch_multiple_tensors(refs[0].hex(), metadata, None, [buffer])
        freeze_in_the_middle(owner_pid, buffer, lambda: request.fetch.state == "RUNNING")
        os.kill(owner_pid, signal.SIGCONT)
        os.kill(os.getpid(), signal.SIGKILL)

    from actors import Reader

    owner, reader = far_pair
    refs = ray.get(owner.put.remote(make_large))
    owner_pid = ray.get(owner.pid.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(reader.call.remote(lambda self: fetch_and_die(self, refs, owner_pid)))
    other = Reader.options(runtime_env={"env_vars": {"ONESIDED_RAY_TRANSPORTS": "tcp"}}).remote()
    assert ray.get(other.call.remote(lambda self: int(ray.get(refs[0])[0].sum()))) == NBYTES
    refs.clear()
    ray.kill(other)
    until(lambda: ray.get(owner.stats.remote())["objects"] == 0)


def test_after_an_abort_the_buffers_are_quiet(far_pair: tuple[Any, Any]) -> None:
    """T0: the READ is in the middle, its owner frozen | T1: abort_transport() returns -> T2: the owner goes on, another
    object comes over the same connection, and nothing of the first lands any more. A later fetch of it is not aborted."""

    def abort_in_the_middle(self: Any, refs: list[ray.ObjectRef], owner_pid: int) -> tuple[str, str, bool, int, int]:
        from ray.experimental.rdt.util import get_tensor_transport_manager

        transport = get_tensor_transport_manager("HIXL")
        object_id = refs[0].hex()
        metadata = ray._private.worker.global_worker.rdt_manager.get_rdt_metadata(object_id).tensor_transport_meta
        buffer = torch.zeros(NBYTES, dtype=torch.uint8)
        request = transport.fetch_multiple_tensors(object_id, metadata, None, [buffer])
        freeze_in_the_middle(owner_pid, buffer, lambda: request.fetch.state == "RUNNING")
        transport.abort_transport(object_id, None)
        state, then = request.fetch.state, buffer.clone()
        os.kill(owner_pid, signal.SIGCONT)
        other = int(ray.get(refs[1])[0].sum())
        quiet = torch.equal(then, buffer)
        try:
            transport.wait_fetch_complete(request)
            text = "it was done"
        except RayDirectTransportError as error:
            text = str(error)
        return state, text, quiet, other, int(ray.get(refs[0])[0].sum())

    owner, reader = far_pair
    refs = [
        ray.get(owner.put.remote(make))[0] for make in (make_large, lambda: [torch.ones(1 << 20, dtype=torch.uint8)])
    ]
    owner_pid = ray.get(owner.pid.remote())
    state, text, quiet, other, again = ray.get(
        reader.call.remote(lambda self: abort_in_the_middle(self, refs, owner_pid))
    )
    assert state == "ABORTED"
    assert "was aborted" in text
    assert quiet
    assert (other, again) == (1 << 20, NBYTES)


def test_an_owner_killed_before_the_fetch(cluster: None) -> None:
    from actors import Owner, Reader

    owner, reader = Owner.remote(), Reader.remote()
    refs = ray.get(owner.put.remote(lambda: torch.ones(1_000_000)))
    assert ray.get(reader.get.remote(refs))[3] == (1_000_000,)
    os.kill(ray.get(owner.pid.remote()), signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(RayDirectTransportError, match="source actor may have died"):
        ray.get(reader.get.remote(refs))
    assert time.monotonic() - started < SOON_S
    survivor = Owner.remote()
    assert ray.get(reader.ask.remote(survivor.make.remote(lambda: torch.ones(10)), lambda t: float(t.sum()))) == 10.0
    object_id = refs[0].hex()
    [ok, failed] = ray.get(reader.call.remote(lambda self: _fetches(object_id)))
    assert (ok["state"], failed["state"]) == ("DONE", "FAILED")


def _fetches(object_id: str) -> list[dict[str, Any]]:
    import onesided.ray

    return onesided.ray.object_stats(object_id)["fetches"]


def test_an_actor_that_restarts_under_its_name(pair: tuple[Any, Any], until: Callable) -> None:
    """Killed and started again by Ray, found by its name: a new engine, and what the old one described is an error, never
    the new one's bytes."""
    from actors import Owner, by_value

    _, reader = pair
    owner = Owner.options(name="phoenix", max_restarts=1, max_task_retries=2, lifetime="detached").remote()
    first = ray.get(owner.pid.remote())
    old = owner.make.remote(lambda: torch.ones(10))
    ray.get(old)  # Ray refuses to lend an object that does not exist yet
    assert ray.get(reader.get.remote([old])) == by_value(torch.ones(10))
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(owner.die.options(max_task_retries=0).remote())
    found = ray.get_actor("phoenix")
    assert ray.get(found.pid.remote()) != first
    assert ray.get(reader.echo.remote(found.make.remote(lambda: torch.arange(3)))) == by_value(torch.arange(3))
    with pytest.raises(RayDirectTransportError, match="The source actor may have died"):
        ray.get(reader.get.remote([old]))
    assert ray.get(reader.echo.remote(found.make.remote(lambda: torch.arange(4)))) == by_value(torch.arange(4))
    ray.kill(found)
