"""vLLM's own NixlConnector and MooncakeConnector, unmodified, over onesided's nixl and mooncake."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Any

import pytest
from instance import RELEASE
from peers import InstanceProcess


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1000) for _ in range(length)]


class Connector:
    """How one of vLLM's connectors is set up and addressed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()

    def start(self, folder: Path, role: str) -> InstanceProcess:
        environment = {
            "VLLM_HOST_IP": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(self.port),
        }
        transfer: dict[str, Any] = {"kv_connector": self.name, "engine_id": role, "kv_buffer_device": "cpu"}
        if self.name == "MooncakeConnector":
            transfer["kv_role"] = "kv_producer" if role == "prefill" else "kv_consumer"
            transfer["kv_connector_extra_config"] = {"mooncake_protocol": "tcp"}
        # The handshake compares a hash of the model's name: both sides must name one folder. MooncakeConnector of 0.18
        # reads the tokens of a block in the dimension where GPUs have them.
        cache = "NHD" if (self.name, RELEASE < (0, 34)) == ("MooncakeConnector", True) else "cpu"
        return InstanceProcess(folder / "model", transfer, cache=cache, groups=True, environment=environment)

    def to_prefill(self, request: str) -> dict[str, Any]:
        return {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": request}

    def to_decode(self, request: str, response: dict[str, Any] | None) -> dict[str, Any]:
        if self.name == "NixlConnector":
            return dict(response or {})
        return {
            "do_remote_prefill": True, "do_remote_decode": False, "transfer_id": request, "remote_engine_id": "prefill",
            "remote_bootstrap_addr": f"http://127.0.0.1:{self.port}",
        }  # fmt: skip


@pytest.mark.skipif(RELEASE >= (0, 34), reason="the cache of 0.34's back end for CPUs has another form")
@pytest.mark.parametrize("name", ["NixlConnector"])
def test_blocks_arrive_whole_and_are_freed_on_both_sides(tmp_path: Path, name: str) -> None:
    connector = Connector(name)
    with connector.start(tmp_path, "prefill") as prefill, connector.start(tmp_path, "decode") as decode:
        prefill.ready(), decode.ready()
        free = prefill.ask("free_blocks"), decode.ask("free_blocks")
        decode.run("warm", prompt(90, 40), None, 3)  # so that the two sides use other blocks
        for number, length in enumerate((17, 100, 333)):
            tokens = prompt(number, length)
            handed = prefill.run(f"p{number}", tokens, connector.to_prefill(f"t{number}"))
            prefill.ask("steps", 3)
            wanted = prefill.run(f"l{number}", tokens, None, 4)["tokens"]
            decode.ask("count_computed")
            params = connector.to_decode(f"t{number}", handed["params"])
            assert decode.run(f"d{number}", tokens, params, 4)["tokens"] == wanted
            assert decode.ask("count_computed") < length  # the rest came from the other process
        for instance, before in zip((prefill, decode), free, strict=True):
            assert instance.ask("settle")
            assert instance.ask("free_blocks") == before
            report = instance.ask("report")
            assert (report["wrong"], report["load_errors"]) == ([], [])
