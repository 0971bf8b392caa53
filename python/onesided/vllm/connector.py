"""OnesidedConnector: the class that vLLM loads. It translates between vLLM's hooks and the two halves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base

from onesided.vllm.layout import Shard
from onesided.vllm.messages import StepMetadata, WorkerCard
from onesided.vllm.options import ConnectorOptions, UnsupportedError
from onesided.vllm.scheduler import KvScheduler
from onesided.vllm.worker import KvWorker

if TYPE_CHECKING:
    import torch


class OnesidedMetadata(StepMetadata, base.KVConnectorMetadata):
    """A step's orders under vLLM's type."""


@dataclass
class OnesidedHandshake(base.KVConnectorHandshakeMetadata):
    """A worker's card under vLLM's type."""

    card: WorkerCard


@dataclass
class OnesidedWorkerReport(base.KVConnectorWorkerMetadata):
    """Causes of failed loads, from all ranks."""

    causes: list[str] = field(default_factory=list)

    def aggregate(self, other: Any) -> OnesidedWorkerReport:
        return OnesidedWorkerReport(self.causes + other.causes)


def _shard_of(config: Any) -> Shard:
    """This worker's part of the KV heads."""
    from vllm.distributed import parallel_state

    size = config.parallel_config.tensor_parallel_size
    grouped = parallel_state.model_parallel_is_initialized()
    rank = parallel_state.get_tensor_model_parallel_rank() if grouped else config.parallel_config.rank % size
    heads = 1 if config.model_config.use_mla else config.model_config.get_total_num_kv_heads()
    return Shard(rank, size, heads, -1 if config.model_config.use_mla else 0)


class OnesidedConnector(base.KVConnectorBase_V1):
    """Pull-based, one-sided KV hand-over. The scheduler's and the worker's instance live in different processes."""

    def __init__(self, vllm_config: Any, role: base.KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        config = vllm_config.kv_transfer_config
        options = ConnectorOptions.parse(config.kv_connector_extra_config)
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            raise UnsupportedError(
                f"pipeline_parallel_size is {vllm_config.parallel_config.pipeline_parallel_size}; onesided.vllm serves 1."
            )
        if kv_cache_config is None or len(kv_cache_config.kv_cache_groups) != 1:
            groups = "unknown" if kv_cache_config is None else len(kv_cache_config.kv_cache_groups)
            raise UnsupportedError(
                f"the cache has {groups} groups; onesided.vllm serves models with one group of layers."
            )
        shard = _shard_of(vllm_config)
        block_size = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
        self._scheduler: KvScheduler | None = None
        self._worker: KvWorker | None = None
        if role == base.KVConnectorRole.SCHEDULER:
            self._scheduler = KvScheduler(
                options,
                engine_name=config.engine_id,
                block_size=block_size,
                total_heads=shard.total_heads,
                replicated=vllm_config.model_config.use_mla,
            )
        else:
            self._worker = KvWorker(
                options,
                address=options.local_address or _own_address(),
                shard=shard,
                num_blocks=kv_cache_config.num_blocks,
                block_size=block_size,
                name=f"{config.engine_id} rank {shard.tp_rank}",
            )

    @property
    def _s(self) -> KvScheduler:
        assert self._scheduler is not None, "a scheduler's hook was called on the worker's connector"
        return self._scheduler

    @property
    def _w(self) -> KvWorker:
        assert self._worker is not None, "a worker's hook was called on the scheduler's connector"
        return self._worker

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """HND: the heads of a block are one range, so that peers with another tensor-parallel size can read them."""
        model = vllm_config.model_config
        return None if model is None or model.use_mla else "HND"

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """Waiting for a layer within the step cannot be captured in a graph."""
        return extra_config.get("load") == "layerwise"

    @classmethod
    def kv_cache_access(cls, kv_transfer_config: Any) -> Any:
        """vllm 0.34: the workers register the cache, so each segment must be one allocation."""
        from vllm.config.kv_transfer import KVCacheAccess

        return KVCacheAccess.REGISTERS

    # -- worker -------------------------------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._w.register(kv_caches)

    def get_handshake_metadata(self) -> OnesidedHandshake:
        return OnesidedHandshake(self._w.card())

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, OnesidedMetadata), f"metadata of another connector: {type(metadata).__name__}"
        self._w.begin_step(metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._w.wait_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: readers take the blocks out of the cache itself."""

    def wait_for_save(self) -> None:
        """Nothing: see save_kv_layer."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        sent, received = self._w.end_step()
        return sent or None, received or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        """vllm 0.34's form of get_finished: failed receives by name too."""
        sent, received = self._w.end_step()
        return base.KVConnectorTransferResults(
            finished_sending=sent, finished_recving=received, failed_recving=self._w.take_failed() & received
        )

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._w.take_bad_blocks()

    def build_connector_worker_meta(self) -> OnesidedWorkerReport | None:
        causes = self._w.take_causes()
        return OnesidedWorkerReport(causes) if causes else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()

    # -- scheduler ----------------------------------------------------------------------------------------------------

    def set_xfer_handshake_metadata(self, metadata: dict[int, Any]) -> None:
        self._s.set_workers({rank: one.card for rank, one in metadata.items()})

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return self._s.num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._s.after_alloc(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> OnesidedMetadata:
        return OnesidedMetadata(**vars(self._s.take_step()))

    def update_connector_output(self, connector_output: Any) -> None:
        report = getattr(connector_output, "kv_connector_worker_meta", None)
        causes = report.causes if isinstance(report, OnesidedWorkerReport) else []
        self._s.step_done(
            connector_output.finished_sending or set(), connector_output.finished_recving or set(), causes
        )

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self._s.request_finished(request, block_ids)


def _own_address() -> str:
    from vllm.utils.network_utils import get_ip

    return str(get_ip())
