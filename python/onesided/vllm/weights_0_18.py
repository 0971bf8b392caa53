"""The weight transfer backend `onesided` in the form of vllm 0.18."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

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

    _: KW_ONLY
    version: int
    timeout_s: float = 600.0


class OnesidedWeightTransferEngine(base.WeightTransferEngine[OnesidedInitInfo, OnesidedUpdateInfo]):
    """A worker that pulls the trainer's weights. Confined to the worker's thread."""

    init_info_cls = OnesidedInitInfo
    update_info_cls = OnesidedUpdateInfo
    _stream: WorkerStream | None = None

    def init_transfer_engine(self, init_info: OnesidedInitInfo) -> None:
        self._stream = WorkerStream(init_info.source, init_info.address, init_info.device, init_info.engine_options)

    def receive_weights(
        self, update_info: OnesidedUpdateInfo, load_weights: Callable[[list[tuple[str, torch.Tensor]]], None]
    ) -> None:
        if self._stream is None:
            raise WeightStreamError("an update came before init_transfer_engine")
        self._stream.receive(update_info.version, load_weights, update_info.timeout_s)

    def shutdown(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @staticmethod
    def trainer_send_weights(iterator: Iterator[tuple[str, torch.Tensor]], trainer_args: dict[str, Any] | Any) -> None:
        """trainer_args: stream (a TrainerStream whose readers are there), version, window_bytes (256 MiB)."""
        stream = trainer_args["stream"]
        if not isinstance(stream, TrainerStream):
            raise WeightStreamError(f"trainer_args['stream'] is a {type(stream).__name__}, not a TrainerStream")
        stream.send(iterator, trainer_args.get("window_bytes", 1 << 28), trainer_args["version"])
