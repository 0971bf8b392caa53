"""The demo is believed only if its checks can fail and its table is the model's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onesided.cli.demo import cluster, model
from onesided.cli.demo.figures import Figures

KEYS = {
    "misaligned_plain", "misaligned_pool", "error_plain", "reserved_pool_bytes", "charged_pool_bytes",
    "reserved_workaround_bytes", "tensors", "bytes", "checksum_ok", "hixl_gbps_first", "hixl_gbps_best",
    "object_store_gbps_best", "registrations_after_first", "device",
}  # fmt: skip


def good() -> Figures:
    return Figures(
        misaligned_plain=3, misaligned_pool=0, error_plain="FAILED (503900)", checksum_ok=True, hixl_gbps_best=5.0,
        object_store_gbps_best=0.5, registrations_after_first=0,
    )  # fmt: skip


def test_the_json_has_exactly_the_promised_keys(tmp_path: Path) -> None:
    good().write(tmp_path / "out.json")
    assert set(json.loads((tmp_path / "out.json").read_text())) == KEYS


def test_a_good_run_passes_and_an_empty_one_fails_every_check() -> None:
    assert good().failed_checks() == []
    assert len(Figures().failed_checks()) == 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("misaligned_plain", 0),
        ("misaligned_pool", 1),
        ("error_plain", "connected"),
        ("checksum_ok", False),
        ("registrations_after_first", 1),
        ("hixl_gbps_best", 2.4),
        ("object_store_gbps_best", 0.0),
    ],
)
def test_each_check_can_fail(name: str, value: object) -> None:
    figures = good()
    setattr(figures, name, value)
    assert len(figures.failed_checks()) == 1


def test_the_table_is_the_published_models() -> None:
    tensors = dict(model.shapes())
    assert len(tensors) == 290
    assert model.total_bytes() == 2 * 494_032_768  # the parameter count its card states, bfloat16
    assert tensors["model.layers.23.self_attn.k_proj.bias"] == (128,)
    assert tensors["model.layers.0.mlp.down_proj.weight"] == (896, 4864)


HOLD = """
import sys
from onesided.cli.demo import cluster
with cluster.only_one():
    print("holds", flush=True)
    sys.stdin.readline()
"""


def test_a_second_demo_is_told_so_and_a_killed_one_leaves_the_way_free() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"holds\n"
        with pytest.raises(cluster.AlreadyRunning, match="another demo"), cluster.only_one():
            pass
        first.kill()
    with cluster.only_one():
        pass


def test_what_outlives_its_run_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_GRACE_SECONDS", 0.0)
    with cluster.marked():
        orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
    assert orphan.wait(timeout=10) == -9
    assert cluster._MARK not in os.environ
