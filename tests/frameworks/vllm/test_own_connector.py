"""onesided's KV connector in vLLM: prefill and decode in two processes, vLLM's scheduler and hooks on both sides."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers import InstanceProcess

OWN = {"kv_connector": "OnesidedConnector", "kv_connector_module_path": "onesided.vllm"}
PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}


def transfer(name: str, **options: Any) -> dict[str, Any]:
    return {**OWN, "engine_id": name, "kv_connector_extra_config": {"local_address": "127.0.0.1", **options}}


def prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1000) for _ in range(length)]


@pytest.fixture(params=["async", "layerwise"])
def load(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def pair(tmp_path: Path, load: str) -> Iterator[tuple[InstanceProcess, InstanceProcess]]:
    with (
        InstanceProcess(tmp_path / "p", transfer("prefill")) as prefill,
        InstanceProcess(tmp_path / "d", transfer("decode", load=load)) as decode,
    ):
        yield prefill.ready(), decode.ready()


def free_at_rest(instance: InstanceProcess) -> int:
    assert instance.ask("settle")
    return instance.ask("free_blocks")


@pytest.mark.ci
def test_blocks_arrive_whole_and_are_freed_on_both_sides(pair: tuple[InstanceProcess, InstanceProcess]) -> None:
    prefill, decode = pair
    free = free_at_rest(prefill), free_at_rest(decode)
    decode.run("warm", prompt(90, 40), None, 3)  # so that the two sides use other blocks
    for number, length in enumerate((5, 16, 17, 100, 333)):
        tokens = prompt(number, length)
        handed = prefill.run(f"p{number}", tokens, dict(PREFILL))
        assert handed["params"]["do_remote_prefill"]
        local = prefill.run(f"l{number}", tokens, None, 4)
        decode.ask("count_computed")
        remote = decode.run(f"d{number}", tokens, handed["params"], 4)
        assert remote["tokens"] == local["tokens"]
        assert decode.ask("count_computed") <= 5  # what the prefill side has, nothing computes again
    for instance, before in zip(pair, free, strict=True):
        assert free_at_rest(instance) == before
        report = instance.ask("report")
        assert (report["wrong"], report["load_errors"]) == ([], [])


def test_a_reference_is_good_once(pair: tuple[InstanceProcess, InstanceProcess]) -> None:
    """K1: blocks that were read, freed and used again are refused; the request is computed instead."""
    prefill, decode = pair
    tokens = prompt(1, 200)
    params = prefill.run("p", tokens, dict(PREFILL))["params"]
    first = decode.run("d1", tokens, {**params}, 2)
    assert prefill.ask("settle")
    prefill.run("other", prompt(2, 700), None)  # uses the blocks again
    decode.run("flush", prompt(3, 900), None)  # and the decode side's cache forgets
    again = decode.run("d2", tokens, {**params}, 2)
    assert again["tokens"] == first["tokens"]
    assert decode.ask("report")["wrong"] == []


def test_damaged_references_are_computed(pair: tuple[InstanceProcess, InstanceProcess]) -> None:
    """K1: blocks out of range, blocks of another shape, a request that no side has."""
    prefill, decode = pair
    tokens = prompt(4, 120)
    wanted = prefill.run("reference", tokens, None, 2)["tokens"]
    for number, change in enumerate(
        (
            {"remote_block_ids": [10_000_000] * 8},
            {"remote_block_ids": [1, 2]},
            {"remote_block_ids": "blocks"},
            {"onesided": None},
            {"onesided": {"format": 99}},
        )
    ):
        params = prefill.run(f"p{number}", tokens, dict(PREFILL))["params"]
        found = decode.run(f"d{number}", [number, *tokens], {**params, **change}, 1)
        assert found["reason"] == "length"
        found = decode.run(f"e{number}", tokens, {**params, **change}, 2)
        assert found["tokens"] == wanted
    assert decode.ask("report")["wrong"] == []


@pytest.mark.ci
def test_a_killed_prefill_costs_a_computation(pair: tuple[InstanceProcess, InstanceProcess]) -> None:
    """K2: the blocks of the failed load are reported, computed again, and the result is right."""
    prefill, decode = pair
    tokens = prompt(5, 300)
    wanted = prefill.run("reference", tokens, None, 3)["tokens"]
    params = prefill.run("p", tokens, dict(PREFILL))["params"]
    free = free_at_rest(decode)
    prefill.kill()
    assert decode.run("d", tokens, params, 3)["tokens"] == wanted
    assert free_at_rest(decode) == free
    report = decode.ask("report")
    assert report["wrong"] == []
    assert report["load_errors"]
    assert decode.run("again", tokens, None, 3)["tokens"] == wanted  # nothing half-loaded is in the prefix cache


def test_aborts_free_both_sides(pair: tuple[InstanceProcess, InstanceProcess]) -> None:
    prefill, decode = pair
    free = free_at_rest(prefill), free_at_rest(decode)
    for number in range(6):
        tokens = prompt(20 + number, 150)
        params = prefill.run(f"p{number}", tokens, dict(PREFILL))["params"]
        decode.ask("add", f"d{number}", tokens, params, 4)
        for _ in range(number % 3):
            decode.ask("step")
        decode.ask("abort", f"d{number}")
        decode.ask("run")
        assert decode.ask("settle")
        prefill.ask("add", f"q{number}", prompt(40 + number, 100), dict(PREFILL), 1)
        prefill.ask("abort", f"q{number}")
        prefill.ask("run")
    assert (free_at_rest(prefill), free_at_rest(decode)) == free
