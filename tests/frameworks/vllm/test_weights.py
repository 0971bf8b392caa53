"""vLLM's weight transfer with the backend onesided, made by vLLM's own factories: trainer and workers in three processes."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from instance import RELEASE
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import factory
from vllm.model_executor.model_loader.weight_utils import default_weight_loader

from onesided.vllm import plugin


class Model(torch.nn.Module):
    """A small model with a buffer, a tied weight and parameters of two types."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = torch.nn.Embedding(50, 16)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)])
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.norm = torch.nn.LayerNorm(16).bfloat16()

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        own, loaded = dict(self.named_parameters()), set()
        for name, value in weights:
            load = getattr(own[name], "weight_loader", default_weight_loader)  # as vLLM's models load
            load(own[name], value)
            loaded.add(name)
        return loaded


class Worker:
    """The inference side of one process: vLLM's factory makes the engine."""

    def __init__(self) -> None:
        plugin.register()
        plugin.register()  # every process of vLLM may call it again
        self.model = Model(seed=1)
        config = WeightTransferConfig(backend="nccl")
        config.backend = (
            "onesided"  # 0.18 checks the name of a backend against its own two when it makes a configuration
        )
        parallel = SimpleNamespace()
        if RELEASE >= (0, 29):
            from vllm.model_executor.model_loader.reload import record_metadata_for_reloading

            record_metadata_for_reloading(self.model)  # as vLLM's loader does when it has made a model
            vllm_config = SimpleNamespace(parallel_config=parallel, model_config=None)
            self.engine = factory.WeightTransferEngineFactory.create_engine(
                config, vllm_config, torch.device("cpu"), self.model
            )
        else:
            self.engine = factory.WeightTransferEngineFactory.create_engine(config, parallel)

    def init(self, info: dict[str, Any]) -> None:
        self.engine.init_transfer_engine(self.engine.parse_init_info(info))

    def start(self) -> None:
        if RELEASE >= (0, 29):
            self.engine.start_weight_update()

    def update(self, info: dict[str, Any]) -> None:
        if RELEASE >= (0, 29):
            self.engine.update_weights(info)
        else:
            self.engine.receive_weights(self.engine.parse_update_info(info), self.model.load_weights)

    def finish(self) -> None:
        if RELEASE >= (0, 29):
            self.engine.finish_weight_update()

    def state(self) -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def shutdown(self) -> None:
        self.engine.shutdown()


def serve(pipe: Connection) -> None:
    worker = Worker()
    while True:
        try:
            order, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(worker, order)(*arguments)))
        except Exception as error:
            traceback.print_exc()
            pipe.send((False, f"{type(error).__name__}: {error}"))


class Client:
    """vLLM's VLLMWeightSyncClient over pipes to workers."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def all(self, order: str, *arguments: Any) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((order, arguments))
        answers = [pipe.recv() for pipe in self._pipes]
        failed = [answer for passed, answer in answers if not passed]
        if failed:
            raise RuntimeError("; ".join(failed))
        return [answer for _, answer in answers]

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self.all("init", info)

    def start_weight_update(self) -> None:
        self.all("start")

    def update_weights(self, info: dict[str, Any]) -> None:
        self.all("update", info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.all("finish")


@contextmanager
def workers(count: int) -> Iterator[Client]:
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for _ in range(count):
        ours, theirs = multiprocessing.Pipe()
        process = context.Process(target=serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        yield Client(pipes)
    finally:
        for process in processes:
            process.kill()
            process.join()


def check(client: Client, model: Model) -> None:
    for state in client.all("state"):
        for name, value in model.named_parameters():
            assert torch.equal(state[name], value), name


@pytest.mark.parametrize("window_bytes", [256, 1 << 20])
def test_one_update_makes_all_workers_equal(window_bytes: int) -> None:
    """W4: the workers start with other values. W6: the first version is not 1."""
    plugin.register()
    with workers(2) as client:
        model = Model(seed=2)
        send, close = trainer(client, model, window_bytes)
        for _ in range(2):
            send()
            check(client, model)
            with torch.no_grad():
                for value in model.parameters():
                    value.mul_(3)
        client.all("shutdown")
        close()


def trainer(client: Client, model: Model, window_bytes: int) -> tuple[Any, Any]:
    """(sends one update, ends) in the form of this release."""
    if RELEASE >= (0, 29):
        from vllm.distributed.weight_transfer.base import ModuleSource

        from onesided.vllm.weights import OnesidedTrainerInitInfo

        info = OnesidedTrainerInitInfo(readers=2, window_bytes=window_bytes, first_version=41, rank=0, timeout_s=20)
        engine = factory.WeightTransferTrainerFactory.trainer_init(info, client=client, source=ModuleSource(model))
        return engine.send_weights, engine.shutdown

    from onesided.vllm.weight_stream import TrainerStream
    from onesided.vllm.weights_0_18 import OnesidedWeightTransferEngine

    stream = TrainerStream("127.0.0.1", 2)
    client.init_weight_transfer_engine({"source": stream.engine.id})
    stream.wait_for_readers(20)
    version = 41

    def send() -> None:
        nonlocal version
        with ThreadPoolExecutor(1) as pool:
            update = pool.submit(client.update_weights, {"version": version})
            arguments = {"stream": stream, "version": version, "window_bytes": window_bytes}
            OnesidedWeightTransferEngine.trainer_send_weights(iter(model.named_parameters()), arguments)
            update.result()
        version += 1

    return send, stream.close


def test_an_unknown_field_is_refused() -> None:
    worker = Worker()
    with pytest.raises(ValueError, match="sauce"):
        worker.engine.parse_init_info({"sauce": "x"})
