"""Settings, registration and memories, without a cluster."""

from __future__ import annotations

import gc
import os
import re
import sys
from pathlib import Path

import pytest
import torch

from onesided.ray import device, options, process
from onesided.ray.memories import EMPTY, Memories
from onesided.ray.options import Options
from onesided.ray.registration import check_devices, register_hixl_tensor_transport


def test_settings_come_from_the_environment() -> None:
    assert Options.from_environment({}) == Options()
    read = Options.from_environment(
        {"ONESIDED_REMOTE_ENGINE_CACHE_MAXSIZE": "0", "ONESIDED_RAY_KEEP_REGISTRATIONS": "off"}
    )
    assert read.remote_engines == 0
    assert not read.keep_registrations


WRONG = {
    "ONESIDED_REMOTE_ENGINE_CACHE_MAXSIZE": ["-1", "many"],
    "ONESIDED_RAY_CONNECT_TIMEOUT_S": ["0", "soon"],
    "ONESIDED_RAY_TRANSFER_TIMEOUT_S": ["nan", "-1"],
    "ONESIDED_RAY_HOST": ["0.0.0.0", "203.0.113.7", "no host"],
    "ONESIDED_RAY_TRANSPORTS": ["foo", "shm,bar"],
    "ONESIDED_RAY_KEEP_REGISTRATIONS": ["perhaps"],
    "ONESIDED_RAY_RECEIVE_POOL": ["maybe"],
    "ONESIDED_RAY_RECEIVE_POOL_BYTES": ["-1", "1G"],
}


@pytest.mark.parametrize(("variable", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_bad_setting_is_named(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}='{value}'"):
        process.Process(Options.from_environment({variable: value}))


def test_every_setting_is_in_the_docs_and_has_its_wrong_values_here() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "ray.md").read_text()
    table = text.split("## Settings")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(ONESIDED_\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    names = {variable: field for field, (variable, _) in options._VARIABLES.items()}
    assert set(rows) == set(names) == set(WRONG)
    defaults = Options()
    for variable, default in rows.items():
        value = getattr(defaults, names[variable])
        if value is not None:  # else the table says in words what decides
            assert default.strip() == f"{int(value)}", variable


def test_a_misspelt_setting_is_not_ignored() -> None:
    with pytest.raises(
        ValueError, match="ONESIDED_RAY_CONNECT_TIMEOUT: no such setting; did you mean ONESIDED_RAY_CONNECT"
    ):
        Options.from_environment({"ONESIDED_RAY_CONNECT_TIMEOUT": "10"})


def test_registration_is_idempotent_and_follows_the_last_call() -> None:
    from ray.experimental.rdt import util as rdt

    for devices in (["cpu"], ["npu", "cpu"], ["npu", "cpu"]):
        register_hixl_tensor_transport(devices)
        assert rdt.transport_manager_info["HIXL"].devices == devices


@pytest.mark.parametrize("devices", [[], ["cuda"], ["cpu", "tpu"]])
def test_unknown_devices_are_refused(devices: list[str]) -> None:
    with pytest.raises(ValueError, match="npu and cpu"):
        register_hixl_tensor_transport(devices)


def test_one_kind_of_tensors_may_be_given_alone() -> None:
    assert check_devices("cpu") == ["cpu"]
    with pytest.raises(ValueError, match="npu and cpu tensors, not gpu"):
        check_devices("gpu")


@pytest.mark.parametrize("device", ["npu", "cuda:0", -1, "npu:x", "npu:-1", True])
def test_a_receiving_device_must_be_an_npu_with_its_index(device: object) -> None:
    with pytest.raises(ValueError, match="give the npu's index"):
        register_hixl_tensor_transport(["cpu"], device=device)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [1, "npu:1"])
def test_a_receiving_device_is_accepted_where_no_npu_is(name: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_explicit", None)
    register_hixl_tensor_transport(["cpu"], device=name)
    assert device.index() == 1


def test_the_decorator_refuses_what_it_cannot_do() -> None:
    import onesided.ray

    with pytest.raises(TypeError, match="decorates a class"):
        onesided.ray.actor(lambda: None)
    with pytest.raises(ValueError, match="enable_tensor_transport"):
        onesided.ray.actor(enable_tensor_transport=False)(type("Thing", (), {}))
    with pytest.raises(ValueError, match="not gpu"):
        onesided.ray.actor(devices="gpu")
    with pytest.raises(ValueError, match="give the npu's index"):
        onesided.ray.actor(device="gpu:0")


def test_a_memory_has_one_number_for_life_and_its_end_is_told() -> None:
    gone: list[int] = []
    memories = Memories(gone.append)
    tensor = torch.arange(10)
    first = memories.host_span(tensor)
    view = memories.host_span(tensor[2:4])
    assert view == (tensor.data_ptr() + 16, 16, 0, tensor.data_ptr(), 80, first[5])
    assert memories.host_span(tensor[:0]) == EMPTY
    kept = tensor[5:]
    del tensor
    gc.collect()
    assert gone == []
    del kept
    gc.collect()
    assert gone == [first[5]]
    assert len(memories) == 0


def test_a_resized_memory_is_another() -> None:
    gone: list[int] = []
    memories = Memories(gone.append)
    tensor = torch.zeros(10)
    before = memories.host_span(tensor)[5]
    tensor.resize_(1_000_000)
    after = memories.host_span(tensor)[5]
    assert gone == [before]
    assert after != before


def test_a_failed_import_of_torch_npu_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Broken as torch_npu is without a runtime: the switch is set, then the import fails.
    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "torch_npu":
                os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
                raise ImportError("no runtime")

    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    with pytest.raises(ImportError):
        device.import_torch_npu()
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in os.environ
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    with pytest.raises(ImportError):
        device.import_torch_npu()
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1"
