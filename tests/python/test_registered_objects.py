"""Memory that is registered as an object stays alive as long as peers may read it."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
import weakref

import numpy as np
import pytest

import onesided
from onesided.engine import MemType, Status


@pytest.fixture
def pair():
    with onesided.Engine("127.0.0.1:0") as reader, onesided.Engine("127.0.0.1:0") as owner:
        reader.connect(owner.id)
        yield reader, owner


class Array(np.ndarray):
    """An array that can be watched."""


def watched(nbytes: int, value: int) -> tuple[Array, weakref.ref]:
    array = np.full(nbytes, value, np.uint8).view(Array)
    return array, weakref.ref(array)


def gone(reference: weakref.ref) -> bool:
    gc.collect()
    return reference() is None


def test_a_temporary_stays_until_it_is_deregistered(pair):
    reader, owner = pair
    array, reference = watched(1 << 20, 3)
    address = array.ctypes.data
    handles = [owner.register_mem(array), owner.register_mem(array)]
    del array
    target = np.zeros(1 << 20, np.uint8)
    reader.register_mem(target)
    owner.deregister_mem(handles[0])
    assert not gone(reference)
    reader.transfer_sync(owner.id, "READ", [(target.ctypes.data, address, target.nbytes)])
    assert (target == 3).all()
    owner.deregister_mem(handles[1])
    assert gone(reference)


def test_a_closed_engine_lets_go(pair):
    _, owner = pair
    array, reference = watched(4096, 1)
    owner.register_mem(array)
    del array
    owner.close()
    assert gone(reference)


def test_buffers_of_every_kind(pair):
    reader, owner = pair
    pool, growing, view = onesided.host_pool(4096), bytearray(4096), memoryview(bytearray(8192))[:4096]
    assert owner.register_mem(pool) == owner.register_mem(pool.addr, 4096)
    handle = owner.register_mem(growing)
    with pytest.raises(BufferError):
        growing.append(1)  # it would move
    owner.deregister_mem(handle)
    growing.append(1)
    owner.register_mem(view)
    view[:5] = b"bytes"
    target = np.zeros(5, np.uint8)
    reader.register_mem(target)
    start = np.frombuffer(view, np.uint8).ctypes.data
    reader.transfer_sync(owner.id, "READ", [(target.ctypes.data, start, 5)])
    assert target.tobytes() == b"bytes"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((4096,), "an address requires nbytes"),
        ((object(),), "memory to register is"),
        ((np.zeros((4, 4))[:, :2],), "not contiguous"),
        ((np.zeros(4), None, "device"), 'that memory is "host"'),
        ((np.zeros(4), None, MemType.DEVICE), 'that memory is "host"'),
        ((4096, 4096, "disk"), 'memory type "disk"'),
        (("4096", 4096), "addr must be an integer"),
    ],
)
def test_what_cannot_be_registered(pair, arguments, text):
    with pytest.raises(onesided.EngineError) as caught:
        pair[0].register_mem(*arguments)
    assert caught.value.status == Status.PARAM_INVALID and text in caught.value.text


TENSORS = """
import torch
import onesided

with onesided.Engine("127.0.0.1:0") as engine:
    tensor = torch.arange(1024)
    handle = engine.register_mem(tensor)
    assert handle == engine.register_mem(tensor.data_ptr(), tensor.nbytes, "host")
    for bad, text in ((tensor.view(32, 32).t(), "not contiguous"), (torch.zeros(4, device="meta"), "a tensor on meta")):
        try:
            engine.register_mem(bad)
        except onesided.EngineError as error:
            assert text in error.text, error
        else:
            raise AssertionError(text)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_tensors(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    done = subprocess.run([sys.executable, "-c", TENSORS], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
