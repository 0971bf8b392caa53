"""Part 3: two actors do ten updates and then use the object store; the times are those that a user observes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onesided.cli.demo import cluster, model

UPDATES = 10
OBJECT_STORE_ROUNDS = 3
SEED = 20250
_PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Round:
    """One transfer of the whole model. A value."""

    seconds: float
    source_processor_seconds: float
    registrations: int  # made for this transfer, on both sides
    checksum_ok: bool

    @property
    def gbps(self) -> float:
        return model.total_bytes() / self.seconds / 1e9


@dataclass
class Outcome:
    """The measurements of part 3. Confined to one thread."""

    tensors: int = 0
    misaligned: int = 0
    segments_registered: int = 0
    received_on: str = ""
    one_sided: list[Round] = field(default_factory=list)
    object_store: list[Round] = field(default_factory=list)


class _Stage:
    """The two actors and the calls of them. Confined to one thread."""

    def __init__(self) -> None:
        from onesided.cli.demo import actors

        roles: Any = actors  # stubs do not describe the result of @ray.remote
        self.trainer = roles.Trainer.remote(0, SEED)
        self.rollout = roles.Rollout.remote(1)

    def ask(self, *references: Any) -> list[Any]:
        import ray

        return ray.get(list(references), timeout=_PATIENCE_SECONDS)

    def _registrations(self) -> int:
        both = self.ask(self.trainer.registered.remote(), self.rollout.registered.remote())
        return sum(one["registrations"] for one in both)

    def transfer(self, step: int, send: Callable[[], Any]) -> tuple[Round, str]:
        """Updates the weights, moves them once, and compares every tensor's checksum on both sides."""
        self.ask(self.trainer.update.remote(step), self.rollout.forget.remote())
        registrations = self._registrations()
        (processor,) = self.ask(self.trainer.processor_seconds.remote())
        begin = time.perf_counter()
        reference = send()
        (where,) = self.ask(self.rollout.receive.remote(reference))
        seconds = time.perf_counter() - begin
        (processor_after,) = self.ask(self.trainer.processor_seconds.remote())
        del reference
        sent, received = self.ask(self.trainer.checksums.remote(), self.rollout.checksums.remote())
        made = self._registrations() - registrations
        same = len(sent) > 0 and sent == received
        return Round(seconds, processor_after - processor, made, same), where


def run(say: Callable[[str], None]) -> Outcome:
    """The whole part. `say` is called with the current step."""
    outcome = Outcome()
    say("starting Ray")
    with cluster.local_ray():
        say("two actors, two NPUs; filling 290 tensors")
        stage = _Stage()
        (outcome.misaligned,) = stage.ask(stage.trainer.misaligned.remote())
        outcome.tensors = sum(1 for _ in model.shapes())
        for step in range(UPDATES):
            say(f"update {step + 1} of {UPDATES}, one-sided")
            done, outcome.received_on = stage.transfer(step, stage.trainer.weights.remote)
            outcome.one_sided.append(done)
        (held,) = stage.ask(stage.trainer.registered.remote())
        outcome.segments_registered = held["regions"]
        for step in range(OBJECT_STORE_ROUNDS):
            say(f"update {step + 1} of {OBJECT_STORE_ROUNDS}, through the object store")
            done, _ = stage.transfer(UPDATES + step, stage.trainer.weights_by_value.remote)
            outcome.object_store.append(done)
    return outcome
