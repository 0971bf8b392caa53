"""The calls of SGLang's Ascend back end, in its order. Not collected by itself: test_drop_ins.py runs it."""

from __future__ import annotations

import numpy as np
import pytest
from memfabric_hybrid import TransferEngine

SDMA = TransferEngine.TransDataOpType.SDMA
STORE = "tcp://127.0.0.1:24669"


def opened(role: str) -> tuple[TransferEngine, str]:
    engine = TransferEngine()
    session = f"127.0.0.1:{engine.get_rpc_port()}"
    assert engine.initialize(STORE, session, role, 0, SDMA) == 0
    assert session == f"127.0.0.1:{engine.get_rpc_port()}"
    return engine, session


def test_prefill_writes_into_decode() -> None:
    prefill, _ = opened("Prefill")
    decode, session = opened("Decode")
    source, target = np.arange(8192, dtype=np.uint8), np.zeros(8192, dtype=np.uint8)
    assert prefill.batch_register_memory([source.ctypes.data], [8192]) == 0
    assert decode.batch_register_memory([target.ctypes.data], [8192]) == 0
    starts = [0, 4096]
    code = prefill.batch_transfer_sync_write(
        session,
        [source.ctypes.data + at for at in starts],
        [target.ctypes.data + 4096 - at for at in starts],
        [4096] * 2,
    )
    assert code == 0
    assert np.array_equal(target[:4096], source[4096:]) and np.array_equal(target[4096:], source[:4096])


@pytest.mark.parametrize(
    ("store", "role", "npu", "kind", "named"),
    [
        (STORE, "Trainer", 0, SDMA, "Trainer"),
        ("http://x", "Prefill", 0, SDMA, "http://x"),
        (STORE, "Prefill", -1, SDMA, "npu_id"),
        (STORE, "Prefill", 0, 17, "trans_op_type"),
    ],
)
def test_wrong_arguments_are_refused_by_name(
    store: str, role: str, npu: int, kind: int, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = TransferEngine()
    assert engine.initialize(store, f"127.0.0.1:{engine.get_rpc_port()}", role, npu, kind) == -1
    assert named in caplog.text
