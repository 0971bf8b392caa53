# ruff: noqa: E402 - the platform is chosen before modules that look at it are imported
"""One vLLM instance as a process: vLLM's own configuration, scheduler and connector hooks around a model of arithmetic.

The model stands in for the GPU part only. It writes a number into the cache for every token that it computes, a function of
layer, head, position and all tokens before it, and looks at every number of the whole context before it answers: a block
that is missing, stale or misplaced shows as a wrong number. peers.py forks instances from a process that has imported vLLM once.
"""

from __future__ import annotations

import copy
import json
import os
import time
import traceback
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import vllm
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform


class PlainCpu(CpuPlatform):
    """vLLM's platform for CPUs without what its kernels ask of the configuration: no kernel runs here."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        pass


# A wheel for GPUs finds no platform on a machine without one. Modules look at it when they are imported.
vllm.platforms._current_platform = PlainCpu()

from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

HEAD_SIZE = 8
RELEASE = tuple(int(part) for part in vllm.__version__.split(".")[:2])
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": HEAD_SIZE,
    "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "float32",
}  # fmt: skip


def make_config(folder: Path, settings: dict[str, Any]) -> VllmConfig:
    """vLLM's configuration for a small Llama without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(MODEL))
    model = ModelConfig(
        model=str(folder), tokenizer=str(folder), skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=2048
    )
    scheduler = SchedulerConfig(
        max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=2048, enable_chunked_prefill=True,
        is_encoder_decoder=False, disable_hybrid_kv_cache_manager=True,
    )  # fmt: skip
    transfer = {"kv_role": "kv_both", "kv_load_failure_policy": "recompute", **settings["transfer"]}
    cache = CacheConfig(block_size=settings.get("block_size", 16), cache_dtype="auto", enable_prefix_caching=True)
    cache.num_gpu_blocks = settings.get("num_blocks", 64)
    config = VllmConfig(
        model_config=model, cache_config=cache, scheduler_config=scheduler, device_config=DeviceConfig("cpu"),
        parallel_config=ParallelConfig(), kv_transfer_config=KVTransferConfig(**transfer),
    )  # fmt: skip
    # One process plays all ranks of a group; vLLM itself would look for as many devices.
    config.parallel_config.tensor_parallel_size = settings.get("tp_size", 1)
    config.parallel_config.world_size = settings.get("tp_size", 1)
    return config


def values(layer: int, heads: range, tokens: torch.Tensor) -> torch.Tensor:
    """What the cache must hold for a context: (2, tokens, heads, HEAD_SIZE)."""
    history = torch.cumsum((tokens.double() + 1) * torch.arange(1, len(tokens) + 1).double(), 0) % 65521
    head = torch.tensor(list(heads)).double().view(1, 1, -1, 1)
    kind = torch.arange(2).double().view(2, 1, 1, 1)
    place = torch.arange(HEAD_SIZE).double().view(1, 1, 1, -1)
    return ((history.view(1, -1, 1, 1) * 7 + layer * 1009 + head * 131 + kind * 17 + place) % 65521).float()


def model_output(names: list[str], sampled: list[list[int]], transfer: KVConnectorOutput) -> ModelRunnerOutput:
    """What a model runner returns, in the form of this release."""
    given: dict[str, Any] = {"req_ids": names, "kv_connector_output": transfer}
    given["sampled_token_ids"] = sampled
    if "req_id_to_index" in {one.name for one in fields(ModelRunnerOutput)}:
        given["req_id_to_index"] = {name: at for at, name in enumerate(names)}
    return ModelRunnerOutput(**given)


class Rank:
    """One worker: its cache, its connector and its share of the model. Confined to one thread."""

    def __init__(self, config: VllmConfig, cache_config: KVCacheConfig, rank: int, settings: dict[str, Any]) -> None:
        size = config.parallel_config.tensor_parallel_size
        each = MODEL["num_key_value_heads"] // size
        self.heads = range(rank * each, (rank + 1) * each)
        self.block_size = config.cache_config.block_size
        blocks = cache_config.num_blocks
        self.caches: dict[str, torch.Tensor] = {}
        self.tokens_dimension = 2
        for name in cache_config.kv_cache_groups[0].layer_names:
            if settings.get("cache") == "cpu":  # what vLLM's own back end for CPUs asks for
                shape = self._backend_shape(config, blocks, each)
                memory = torch.full(shape, -1.0)
                self.caches[name] = memory
                self.tokens_dimension = shape.index(self.block_size, 2)
            elif settings.get("cache") == "HND":
                memory = torch.full((blocks, 2, each, self.block_size, HEAD_SIZE), -1.0)
                self.caches[name] = memory.permute(0, 1, 3, 2, 4)
            elif settings.get("cache") == "blocks first":
                self.caches[name] = torch.full((blocks, 2, self.block_size, each, HEAD_SIZE), -1.0)
            else:
                self.caches[name] = torch.full((2, blocks, self.block_size, each, HEAD_SIZE), -1.0)
        config = copy.copy(config)
        config.parallel_config = copy.copy(config.parallel_config)
        config.parallel_config.rank = rank
        self.connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, cache_config)
        self.connector.register_kv_caches(self.caches)

    def _backend_shape(self, config: VllmConfig, blocks: int, heads: int) -> tuple[int, ...]:
        from vllm.distributed.kv_transfer.kv_connector import utils

        backends = utils.get_current_attn_backends(config)
        return tuple(backends[0].get_kv_cache_shape(blocks, self.block_size, heads, HEAD_SIZE))

    def _blocks(self, name: str) -> torch.Tensor:
        """(2, blocks, block size, heads, HEAD_SIZE), a view."""
        cache = self.caches[name]
        if self.tokens_dimension == 3:
            cache = cache.transpose(2, 3)
        return cache if cache.shape[0] == 2 else cache.transpose(0, 1)

    def write(self, name: str, layer: int, tokens: torch.Tensor, blocks: list[int], start: int, end: int) -> None:
        wanted = values(layer, self.heads, tokens)
        for at in range(start, end):
            self._blocks(name)[:, blocks[at // self.block_size], at % self.block_size] = wanted[:, at]

    def wrong(self, name: str, layer: int, tokens: torch.Tensor, blocks: list[int], end: int) -> list[int]:
        """Positions of a context whose numbers are not what they must be."""
        found = self._blocks(name)[:, blocks].flatten(1, 2)[:, :end]
        same = (found == values(layer, self.heads, tokens)[:, :end]).flatten(2).all(2).all(0)
        return torch.nonzero(~same).flatten().tolist()


class Instance:
    """One instance. Confined to one thread."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.config = make_config(Path(settings["folder"]), settings)
        blocks = self.config.cache_config.num_gpu_blocks
        layers = [f"model.layers.{index}.self_attn.attn" for index in range(MODEL["num_hidden_layers"])]
        size = self.config.parallel_config.tensor_parallel_size
        spec = FullAttentionSpec(
            block_size=self.config.cache_config.block_size, num_kv_heads=MODEL["num_key_value_heads"] // size,
            head_size=HEAD_SIZE, dtype=torch.float32,
        )  # fmt: skip
        cache_config = KVCacheConfig(
            num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(layers, spec)]
        )
        self.layers = layers
        if settings.get("groups"):
            self._make_groups()
        self.scheduler = Scheduler(
            vllm_config=self.config, kv_cache_config=cache_config,
            structured_output_manager=StructuredOutputManager(self.config), block_size=spec.block_size,
        )  # fmt: skip
        with set_current_vllm_config(self.config):
            self.ranks = [Rank(self.config, cache_config, rank, settings) for rank in range(size)]
        cards = {rank: one.connector.get_handshake_metadata() for rank, one in enumerate(self.ranks)}
        if all(cards.values()):
            self._set_handshake(cards)
        self.requests: dict[str, Request] = {}
        self.finished: dict[str, dict[str, Any]] = {}
        self.wrong: list[str] = []
        self.computed = 0
        self.load_errors: set[int] = set()

    def _make_groups(self) -> None:
        """torch.distributed and vLLM's groups of one rank, as a worker has them."""
        from vllm.distributed import parallel_state
        from vllm.utils.network_utils import get_open_port

        with set_current_vllm_config(self.config):
            address = f"tcp://127.0.0.1:{get_open_port()}"
            parallel_state.init_distributed_environment(1, 0, address, 0, backend="gloo")
            parallel_state.initialize_model_parallel(1, 1)

    def steps(self, count: int) -> None:
        """That many steps of the engine core, whether there is something to do or not."""
        for _ in range(count):
            self._empty_step()

    def _set_handshake(self, cards: dict[int, Any]) -> None:
        connector = self.scheduler.connector
        if hasattr(connector, "set_xfer_handshake_metadata_pp_aware"):
            connector.set_xfer_handshake_metadata_pp_aware({(0, rank): one for rank, one in cards.items()})
        else:
            connector.set_xfer_handshake_metadata(cards)

    def add(self, request_id: str, tokens: list[int], params: dict[str, Any] | None, max_tokens: int) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, extra_args={"kv_transfer_params": params})
        hasher = self._hasher()
        request = Request(
            request_id=request_id, prompt_token_ids=tokens, sampling_params=sampling, pooling_params=None,
            block_hasher=hasher,
        )  # fmt: skip
        self.requests[request_id] = request
        self.scheduler.add_request(request)

    def _hasher(self) -> Any:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

        init_none_hash(sha256)
        return get_request_block_hasher(self.config.cache_config.block_size, sha256)

    def abort(self, request_id: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def step(self) -> bool:
        """One step of the engine core. False: nothing was there to do."""
        if not self.scheduler.has_requests():
            return False
        planned = self.scheduler.schedule()
        output = self._run(planned)
        results = self.scheduler.update_from_output(planned, output)
        for outputs in results.values():
            for one in outputs.outputs:
                if one.finish_reason is not None:
                    request = self.requests.pop(one.request_id)
                    self.finished[one.request_id] = {
                        "tokens": list(request.output_token_ids), "params": one.kv_transfer_params,
                        "reason": str(one.finish_reason), "status": request.status.name,
                    }  # fmt: skip
        return True

    def run(self, timeout_s: float = 20.0) -> None:
        """Steps until every request has ended."""
        limit = time.monotonic() + timeout_s
        while self.requests and time.monotonic() < limit:
            self.step()
            for request_id in [one for one, request in self.requests.items() if request.is_finished()]:
                self.finished[request_id] = {"tokens": [], "params": None, "reason": "abort", "status": "aborted"}
                del self.requests[request_id]

    def settle(self, timeout_s: float = 20.0) -> bool:
        """Steps until the scheduler keeps no blocks for any request."""
        limit = time.monotonic() + timeout_s
        while self.scheduler.has_requests() or self.scheduler.requests:
            self._empty_step()
            if time.monotonic() > limit:
                return False
        for _ in range(3):
            self._empty_step()
        return True

    def _empty_step(self) -> None:
        planned = self.scheduler.schedule()
        self.scheduler.update_from_output(planned, self._run(planned))

    def _run(self, planned: Any) -> ModelRunnerOutput:
        self.computed += sum(planned.num_scheduled_tokens.values())
        outputs = [self._run_rank(rank, planned) for rank in self.ranks]
        transfer = outputs[0]
        if len(outputs) > 1:
            transfer = self._aggregate(outputs)
        self.load_errors |= set(transfer.invalid_block_ids or ())
        scheduled = list(planned.num_scheduled_tokens)
        sampled = []
        for request_id in scheduled:
            request = self.requests[request_id]
            done = request.num_computed_tokens  # schedule() has added what it scheduled
            sampled.append([self._sample(request, done)] if done >= request.num_tokens else [])
        return model_output(scheduled, sampled, transfer)

    def _sample(self, request: Request, done: int) -> int:
        tokens = torch.tensor(request.all_token_ids[:done])
        return int(values(0, range(1), tokens)[0, -1, 0, 0]) % 1000

    def _aggregate(self, outputs: list[KVConnectorOutput]) -> KVConnectorOutput:
        from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator

        if not hasattr(self, "_aggregator"):
            self._aggregator = KVOutputAggregator(expected_finished_count=len(outputs))
        wrapped = [model_output([], [], one) for one in outputs]
        merged = self._aggregator.aggregate(wrapped, 0)
        return merged.kv_connector_output

    def _run_rank(self, rank: Rank, planned: Any) -> KVConnectorOutput:
        """What vLLM's model runner does with a worker's connector in one step, around the model."""
        connector, output = rank.connector, KVConnectorOutput()
        connector.bind_connector_metadata(planned.kv_connector_metadata)
        loads_first = getattr(planned, "has_sync_kv_loads", True)  # 0.34 starts loads between steps after the model
        if loads_first:
            connector.start_load_kv(None)
        for layer, name in enumerate(self.layers):
            connector.wait_for_layer_load(name)
            for request_id, count in planned.num_scheduled_tokens.items():
                request = self.requests[request_id]
                end = request.num_computed_tokens
                blocks = self.scheduler.kv_cache_manager.get_block_ids(request_id)[0]
                tokens = torch.tensor(request.all_token_ids[:end])
                rank.write(name, layer, tokens, blocks, end - count, end)
            connector.save_kv_layer(name, rank.caches[name], None)
        if not loads_first:
            connector.start_load_kv(None)
        connector.wait_for_save()
        if RELEASE >= (0, 34):
            results = connector.get_transfer_results(planned.finished_req_ids)
            output.finished_sending = results.finished_sending or None
            output.finished_recving = results.finished_recving or None
            output.failed_recving = results.failed_recving
        else:
            output.finished_sending, output.finished_recving = connector.get_finished(planned.finished_req_ids)
        output.invalid_block_ids = connector.get_block_ids_with_load_errors()
        output.kv_connector_worker_meta = connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        if not output.invalid_block_ids:
            self._look(rank, planned)
        return output

    def _look(self, rank: Rank, planned: Any) -> None:
        """Attention: every request of the step looks at its whole context in every layer."""
        for request_id in planned.num_scheduled_tokens:
            request = self.requests[request_id]
            blocks = self.scheduler.kv_cache_manager.get_block_ids(request_id)[0]
            end = request.num_computed_tokens
            for layer, name in enumerate(self.layers):
                bad = rank.wrong(name, layer, torch.tensor(request.all_token_ids[:end]), blocks, end)
                if bad:
                    self.wrong.append(f"{request_id} layer {layer} heads {rank.heads} positions {bad[:4]} of {end}")

    def count_computed(self) -> int:
        """Tokens that the model computed since this was asked last."""
        count, self.computed = self.computed, 0
        return count

    def free_blocks(self) -> int:
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def report(self) -> dict[str, Any]:
        return {
            "finished": self.finished, "wrong": self.wrong, "free_blocks": self.free_blocks(),
            "load_errors": sorted(self.load_errors), "waiting": sorted(self.requests),
        }  # fmt: skip


def serve(pipe: Connection, settings: dict[str, Any]) -> None:
    """The child's main: makes the instance, then calls its methods as asked until the pipe closes."""
    try:
        instance = Instance(settings)
        pipe.send((True, os.getpid()))
    except Exception as error:
        traceback.print_exc()
        pipe.send((False, f"{type(error).__name__}: {error}"))
        return
    while True:
        try:
            order, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(instance, order)(*arguments)))
        except Exception as error:
            traceback.print_exc()
            pipe.send((False, f"{type(error).__name__}: {error}"))
