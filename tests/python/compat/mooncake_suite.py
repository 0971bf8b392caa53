"""What Mooncake's callers rely on, for `import mooncake.engine`: ours and the real package pass the same file.

Not collected by itself: test_drop_ins.py runs it in processes where the import leads to one or the other.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

OURS = TransferEngine.__module__.startswith("onesided")
only_ours = pytest.mark.skipif(not OURS, reason="the real package crashes, hangs or lets it pass")
BYTES = 1 << 16


class Side:
    """An engine with one registered buffer."""

    def __init__(self, fill: bool) -> None:
        self.engine = TransferEngine()
        assert self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        self.memory = np.arange(BYTES, dtype=np.uint8) if fill else np.zeros(BYTES, dtype=np.uint8)
        self.address = self.memory.ctypes.data
        assert self.engine.register_memory(self.address, BYTES) == 0

    @property
    def session(self) -> str:
        return f"127.0.0.1:{self.engine.get_rpc_port()}"


@pytest.fixture(scope="module")
def owner() -> Iterator[Side]:
    yield Side(fill=True)


@pytest.fixture
def reader() -> Iterator[Side]:
    yield Side(fill=False)


def test_reads_and_writes_move_bytes(reader: Side, owner: Side) -> None:
    assert reader.engine.transfer_sync_read(owner.session, reader.address, owner.address + 100, 5000) == 0
    assert np.array_equal(reader.memory[:5000], owner.memory[100:5100])
    other = Side(fill=False)
    assert owner.engine.transfer_sync_write(other.session, owner.address, other.address + 7, 300) == 0
    assert np.array_equal(other.memory[7:307], owner.memory[:300])
    assert not other.memory[307:].any()


def test_batches_keep_their_order(reader: Side, owner: Side) -> None:
    code = reader.engine.batch_transfer_sync_read(
        owner.session, [reader.address, reader.address + 512], [owner.address + 1024, owner.address], [512, 512]
    )
    assert code == 0
    assert np.array_equal(reader.memory[:512], owner.memory[1024:1536])
    assert np.array_equal(reader.memory[512:1024], owner.memory[:512])


def test_asynchronous_batches_are_waited_for(reader: Side, owner: Side) -> None:
    numbers = [
        reader.engine.batch_transfer_async_read(owner.session, [reader.address + at], [owner.address + at], [256])
        for at in (0, 256, 512)
    ]
    assert 0 not in numbers and len(set(numbers)) == 3
    assert reader.engine.get_batch_transfer_status(numbers) == 0
    assert np.array_equal(reader.memory[:768], owner.memory[:768])
    assert reader.engine.get_batch_transfer_status([]) == 0


def test_a_submitted_write_is_asked_about(reader: Side, owner: Side) -> None:
    number = owner.engine.transfer_submit_write(reader.session, owner.address, reader.address, 4096)
    deadline = time.monotonic() + 20
    while (status := owner.engine.transfer_check_status(number)) == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert status == 1
    assert np.array_equal(reader.memory[:4096], owner.memory[:4096])


def test_a_notification_follows_its_transfer(reader: Side, owner: Side) -> None:
    notify = TransferNotify("request-7", "three blocks")
    assert owner.engine.transfer_sync(
        reader.session, owner.address, reader.address, 100, TransferOpcode.Write, notify
    ) == 0  # fmt: skip
    deadline = time.monotonic() + 20
    got: list[tuple[str, str]] = []
    while not got and time.monotonic() < deadline:
        got = [(entry.name, entry.msg) for entry in reader.engine.get_notifies()]
        time.sleep(0.001)
    assert got == [("request-7", "three blocks")]
    assert reader.engine.get_notifies() == []


def test_codes_of_registration(reader: Side) -> None:
    engine, spare = reader.engine, np.zeros(64, dtype=np.uint8)
    assert engine.register_memory(reader.address, BYTES) == -7
    assert engine.register_memory(reader.address + 100, 100) == -7
    assert engine.register_memory(spare.ctypes.data, 0) == -1
    assert engine.unregister_memory(0x1234) == -3
    assert engine.unregister_memory(reader.address) == 0
    assert engine.unregister_memory(reader.address) == -3
    assert engine.batch_register_memory([reader.address, spare.ctypes.data], [64]) == -1
    assert engine.batch_register_memory([reader.address, spare.ctypes.data], [BYTES, 64]) == 0
    assert engine.batch_unregister_memory([reader.address, spare.ctypes.data]) == 0
    assert engine.batch_unregister_memory([reader.address]) == -3


def test_codes_of_transfers(reader: Side, owner: Side) -> None:
    engine = reader.engine
    assert engine.transfer_sync_read(owner.session, reader.address, owner.address, 0) == 0
    assert engine.batch_transfer_sync_read(owner.session, [], [], []) == 0
    assert engine.transfer_sync_read(owner.session, reader.address, owner.address + BYTES * 2, 4096) == -1
    assert engine.transfer_sync_read(owner.session, reader.address, owner.address + BYTES - 10, 4096) == -1
    assert engine.transfer_sync_read("127.0.0.1:1", reader.address, owner.address, 16) == -1
    assert engine.batch_transfer_sync_read(owner.session, [reader.address], [owner.address], [1, 2]) == -1
    assert engine.batch_transfer_async_read("127.0.0.1:1", [reader.address], [owner.address], [16]) == 0
    assert engine.batch_transfer_async_read(owner.session, [reader.address], [owner.address], [1, 2]) == 0
    assert not reader.memory.any()


def test_memory_that_was_unregistered_is_not_read(reader: Side) -> None:
    other = Side(fill=True)
    assert reader.engine.transfer_sync_read(other.session, reader.address, other.address, 64) == 0
    assert other.engine.unregister_memory(other.address) == 0
    reader.memory[:] = 0
    assert reader.engine.transfer_sync_read(other.session, reader.address, other.address, 64) == -1
    assert not reader.memory.any()


def test_wrong_types_are_type_errors(reader: Side, owner: Side) -> None:
    with pytest.raises(TypeError):
        reader.engine.register_memory("x", 3)
    with pytest.raises(TypeError):
        reader.engine.batch_transfer_sync_read(owner.session, [-1], [owner.address], [4])
    with pytest.raises(TypeError):
        reader.engine.transfer_sync_read(owner.session, reader.address, owner.address, 4, nosuch=1)


def test_probes(reader: Side, owner: Side) -> None:
    assert reader.engine.send_probe(owner.session) == 0
    assert reader.engine.send_probe("127.0.0.1:1") != 0


def test_managed_buffers(reader: Side) -> None:
    address = reader.engine.allocate_managed_buffer(4096)
    assert reader.engine.write_bytes_to_buffer(address, "hello", 5) == 0
    assert reader.engine.read_bytes_from_buffer(address, 5) == b"hello"
    assert reader.engine.free_managed_buffer(address, 4096) == 0


@only_ours
def test_calls_before_initialize_answer() -> None:
    engine = TransferEngine()
    assert engine.get_rpc_port() == 0
    assert engine.register_memory(4096, 4096) == -1
    assert engine.transfer_sync_read("127.0.0.1:1", 1, 1, 1) == -1
    assert engine.get_notifies() == []


@only_ours
@pytest.mark.parametrize(
    "arguments",
    [
        ("127.0.0.1", "http://meta:80/metadata", "tcp", ""),
        ("127.0.0.1", "P2PHANDSHAKE", "nvlink", ""),
        ("127.0.0.1", "P2PHANDSHAKE", "rdma", "mlx5_0"),
    ],
)
def test_what_cannot_be_honoured_is_refused(arguments: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    assert TransferEngine().initialize(*arguments) == -1
    assert any(argument in caplog.text for argument in arguments if argument not in ("", "127.0.0.1", "P2PHANDSHAKE"))


@only_ours
def test_a_failed_batch_registers_nothing(reader: Side) -> None:
    spare = np.zeros(64, dtype=np.uint8)
    assert reader.engine.batch_register_memory([spare.ctypes.data, reader.address], [64, 64]) == -7
    assert reader.engine.unregister_memory(spare.ctypes.data) == -3


@only_ours
def test_a_remote_that_speaks_another_protocol(reader: Side) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:

        def answer() -> None:
            caller, _ = foreign.accept()
            with caller:
                caller.sendall(b'{"error": "no such method"}\n' * 100)

        thread = threading.Thread(target=answer)
        thread.start()
        session = f"127.0.0.1:{foreign.getsockname()[1]}"
        assert reader.engine.transfer_sync_read(session, reader.address, 4096, 16) == -1
        thread.join()
    assert not reader.memory.any()


@only_ours
def test_an_unknown_transfer_number(reader: Side) -> None:
    assert reader.engine.get_batch_transfer_status([12345]) == -1
    assert reader.engine.transfer_check_status(12345) == -1


@only_ours
def test_nothing_is_left(reader: Side, owner: Side) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    reader.engine.transfer_sync_read(owner.session, reader.address, owner.address, 16)
    before = descriptors()
    for _ in range(2000):
        reader.engine.transfer_sync_read(owner.session, reader.address, owner.address, 16)
        reader.engine.transfer_sync_read(owner.session, reader.address, owner.address + 2 * BYTES, 16)
    assert descriptors() <= before + 2
