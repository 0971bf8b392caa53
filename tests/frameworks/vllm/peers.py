"""Starts vLLM instances as processes and talks to them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import instance
import torch

_warm = False


class InstanceError(Exception):
    """What an instance answered instead of a result."""


def _warm_up() -> None:
    """Pays for what vLLM imports and looks up once; the instances inherit it. No thread may exist before a fork."""
    global _warm
    if not _warm:
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as folder:
            instance.make_config(Path(folder), {"transfer": {"kv_connector": "ExampleConnector"}})
        _warm = True


class InstanceProcess:
    """One instance in a process of its own. Confined to one thread; a context manager that ends the process."""

    def __init__(self, folder: Path, transfer: dict[str, Any], **settings: Any) -> None:
        _warm_up()
        self._pipe, theirs = multiprocessing.Pipe()
        ours = self._pipe
        arguments = {"folder": str(folder), "transfer": transfer, **settings}

        def child() -> None:
            ours.close()
            os.environ.update(settings.get("environment", {}))
            instance.serve(theirs, arguments)

        self.process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
        self.process.start()
        theirs.close()
        self._started = False

    def ready(self) -> InstanceProcess:
        """Blocks until the instance has started. InstanceError: it could not."""
        if not self._started:
            self._answer()
            self._started = True
        return self

    def __enter__(self) -> InstanceProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self.process.kill()
        self.process.join()

    def ask(self, order: str, *arguments: Any) -> Any:
        """Calls a method of the instance."""
        self.ready()
        self._pipe.send((order, arguments))
        return self._answer()

    def _answer(self) -> Any:
        passed, answer = self._pipe.recv()
        if not passed:
            raise InstanceError(answer)
        return answer

    def kill(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGKILL)
        self.process.join()

    def run(
        self, request_id: str, tokens: list[int], params: dict[str, Any] | None, max_tokens: int = 1
    ) -> dict[str, Any]:
        """One request from its arrival to its end; what the instance reports of it."""
        self.ask("add", request_id, tokens, params, max_tokens)
        self.ask("run")
        return self.ask("report")["finished"][request_id]
