"""The weight transfer backend `onesided` in the form of vllm 0.29 and later: worker's and trainer's side."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from vllm.distributed.weight_transfer import base

from onesided.vllm.weight_stream import TrainerStream, WorkerStream
from onesided.weight_windows import WeightStreamError


@dataclass
class OnesidedInitInfo(base.WeightTransferInitInfo):
    """Where the trainer's engine is."""

    source: str
    address: str = "127.0.0.1"
    device: str = "cpu"
    engine_options: dict[str, str] = field(default_factory=dict)


@dataclass
class OnesidedUpdateInfo(base.WeightTransferUpdateInfo):
    """Which version comes now."""

    version: int
    timeout_s: float = 600.0


class OnesidedWeightTransferEngine(base.WeightTransferEngine[OnesidedInitInfo, OnesidedUpdateInfo]):
    """A worker that pulls the trainer's weights. Confined to the worker's thread."""

    init_info_cls = OnesidedInitInfo
    update_info_cls = OnesidedUpdateInfo
    _stream: WorkerStream | None = None

    def init_transfer_engine(self, init_info: OnesidedInitInfo) -> None:
        self._stream = WorkerStream(init_info.source, init_info.address, init_info.device, init_info.engine_options)

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base class's, which cannot be used on a machine without an accelerator."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: OnesidedUpdateInfo) -> None:
        if self._stream is None:
            raise WeightStreamError("an update came before init_transfer_engine")
        self._stream.receive(update_info.version, self.model.load_weights, update_info.timeout_s)

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


@dataclass
class OnesidedTrainerInitInfo(base.TrainerInitInfo):
    """The trainer's settings: its address, how many inference workers there are, what they receive on."""

    backend: ClassVar[str] = "onesided"
    readers: int
    address: str = "127.0.0.1"
    device: str = "cpu"
    window_bytes: int = 1 << 28
    first_version: int = 1
    timeout_s: float = 600.0
    engine_options: dict[str, str] = field(default_factory=dict)


class OnesidedTrainerWeightTransferEngine(base.TrainerWeightTransferEngine[OnesidedTrainerInitInfo]):
    """The trainer's side. Rank 0 sends; the others take part in gathering. Confined to one thread."""

    init_info_cls = OnesidedTrainerInitInfo

    def __init__(
        self,
        init_info: OnesidedTrainerInitInfo,
        *,
        client: base.VLLMWeightSyncClient,
        source: base.WeightSource,
        stream: TrainerStream | None,
    ) -> None:
        super().__init__(client=client, source=source, is_sender=init_info.is_sender, rank=init_info.rank)
        self._info = init_info
        self._stream = stream
        self._version = init_info.first_version

    @classmethod
    def trainer_init(
        cls,
        init_info: OnesidedTrainerInitInfo,
        *,
        client: base.VLLMWeightSyncClient,
        source: base.WeightSource | None = None,
    ) -> OnesidedTrainerWeightTransferEngine:
        if source is None or not source.implements_iter_full():
            raise WeightStreamError("the backend onesided needs a WeightSource that implements iter_full().")
        stream = None
        if init_info.is_sender:
            stream = TrainerStream(init_info.address, init_info.readers, init_info.engine_options)
            client.init_weight_transfer_engine(
                {
                    "source": stream.engine.id,
                    "address": init_info.address,
                    "device": init_info.device,
                    "engine_options": init_info.engine_options,
                }
            )
            stream.wait_for_readers(init_info.timeout_s)
        return cls(init_info, client=client, source=source, stream=stream)

    def send_weights(self) -> None:
        weights: Iterator[tuple[str, torch.Tensor]] = self.source.iter_full()
        if self._stream is None:
            for _ in weights:  # gathering a weight needs every rank
                pass
            return
        version, self._version = self._version, self._version + 1
        self.client.start_weight_update()
        with ThreadPoolExecutor(1) as pool:  # the workers' call returns when they have everything
            update = pool.submit(self.client.update_weights, {"version": version, "timeout_s": self._info.timeout_s})
            self._stream.send(weights, self._info.window_bytes, version)
            update.result()
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
