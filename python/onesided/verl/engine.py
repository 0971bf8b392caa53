"""verl's checkpoint engine over one-sided READs: the first trainer offers its weights, every rollout worker pulls them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from onesided.engine import Engine, EngineError, Status
from onesided.weight_windows import Pulse, WeightStreamError, WindowReader, WindowSender


@CheckpointEngineRegistry.register("onesided")
class OnesidedCheckpointEngine(CheckpointEngine):
    """Confined to one thread, as verl uses it.

    bucket_size: bytes of weights that are held for readers at a time (two such windows are open).
    rollout_dtype: what weights are sent as; None: as they are.
    device: where rollout workers receive them, "cpu" or "npu".
    address: what the engine listens on; by default the address of this Ray node.
    engine_options: the engine's own, docs/engine.md.
    """

    def __init__(
        self,
        bucket_size: int,
        device: str = "cpu",
        rollout_dtype: torch.dtype | None = torch.bfloat16,
        is_master: bool = False,
        address: str = "",
        engine_options: dict[str, str] | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        if bucket_size <= 0 or device not in ("cpu", "npu"):
            raise WeightStreamError(f"bucket_size is {bucket_size} (> 0), device is {device!r} (cpu or npu)")
        self.bucket_size = bucket_size
        self.device = device
        self.rollout_dtype = getattr(torch, rollout_dtype) if isinstance(rollout_dtype, str) else rollout_dtype
        self.is_master = is_master
        self.timeout_s = timeout_s
        self.engine = Engine(f"{address or ray.util.get_node_ip_address().strip('[]')}:0", engine_options or {})
        self.pulse: Pulse | None = None
        self.rank = -1
        self.peers: dict[str, bytes] = {}

    def prepare(self) -> dict[str, Any]:
        """Where this worker is reached, and whether it still runs."""
        self.pulse = self.pulse or Pulse(self.engine)
        return {"engine_id": self.engine.id, "pulse": self.pulse.described}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The first actor sends, all rollout workers read from it; the other actors take part in gathering only."""
        if len(metadata) != actor_wg_world_size + rollout_world_size:
            raise WeightStreamError(
                f"{len(metadata)} workers prepared; {actor_wg_world_size + rollout_world_size} exist"
            )
        readers, source = metadata[actor_wg_world_size:], metadata[:1]
        actor: dict[str, list[Any]] = {
            "rank": [0] + [-1] * (actor_wg_world_size - 1),
            "peers": [readers] + [[] for _ in range(actor_wg_world_size - 1)],
        }
        rollout: dict[str, list[Any]] = {
            "rank": list(range(1, rollout_world_size + 1)),
            "peers": [source] * rollout_world_size,
        }
        return actor, rollout

    def init_process_group(self, rank: int, peers: list[dict[str, Any]]) -> None:
        """No group: connections, which the sides make on their own."""
        self.rank = rank
        self.peers = {one["engine_id"]: one["pulse"] for one in peers}
        for peer in self.peers:
            try:
                self.engine.connect(peer, 5000)
            except EngineError as error:
                if error.status != Status.ALREADY_CONNECTED:
                    raise

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        """Offers all weights; returns when every rollout worker has read them. WeightStreamError: one is gone."""
        if inspect.isasyncgen(weights):
            weights = [one async for one in weights]
        if self.rank < 0:
            for _ in weights:  # gathering a weight needs every rank
                pass
            return
        dtype = self.rollout_dtype
        converted = ((name, one if dtype is None else one.to(dtype)) for name, one in weights)
        await WindowSender(self.engine, self.peers, self.bucket_size, global_steps).send(converted)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Yields (name, tensor); a tensor is valid until the next one is asked for. WeightStreamError: the source is gone."""
        assert self.pulse is not None, "verl calls prepare() first"
        (source,) = self.peers
        reader = WindowReader(
            self.engine, source, self.pulse, version=global_steps, device=self.device, timeout_s=self.timeout_s
        )
        async for name, tensor in reader.receive():
            yield name, tensor

    def finalize(self) -> None:
        """Ends the connections; buffers were given back when the stream ended."""
        for peer in self.peers:
            try:
                self.engine.disconnect(peer)
            except EngineError as error:
                if error.status not in (Status.NOT_CONNECTED, Status.PEER_LOST):
                    raise
        self.peers = {}
