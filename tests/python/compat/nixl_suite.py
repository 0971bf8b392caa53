"""What NIXL's callers rely on, for `import nixl`: ours and the real package pass the same file.

Not collected by itself: test_drop_ins.py runs it in processes where the import leads to one or the other.
"""

from __future__ import annotations

import importlib
import pickle
import time
from typing import Any

import numpy as np
import pytest

try:
    api: Any = importlib.import_module("nixl._api")
    bindings: Any = importlib.import_module("nixl._bindings")
except ModuleNotFoundError:  # the wheel without its front package
    api, bindings = importlib.import_module("nixl_cu12._api"), importlib.import_module("nixl_cu12._bindings")

OURS = bindings.nixlXferDList.__module__.startswith("onesided")
only_ours = pytest.mark.skipif(not OURS, reason="the real package crashes, hangs or lets it pass")
BYTES, BLOCK = 1 << 16, 1024
BLOCKS = BYTES // BLOCK
_made = iter(range(1 << 20))


class Side:
    """An agent with one registered buffer."""

    def __init__(self, fill: bool, **options: Any) -> None:
        self.name = f"agent-{next(_made)}"
        self.agent = api.nixl_agent(self.name, api.nixl_agent_config(backends=["UCX"], **options))
        self.memory = np.arange(BYTES, dtype=np.uint64).astype(np.uint8) if fill else np.zeros(BYTES, dtype=np.uint8)
        self.address = self.memory.ctypes.data
        self.registered = self.agent.register_memory([(self.address, BYTES, 0, "")], "DRAM")

    def knows(self, other: Side) -> str:
        name = self.agent.add_remote_agent(other.agent.get_agent_metadata())
        return name.decode() if isinstance(name, bytes) else name

    def blocks(self) -> list[tuple[int, int, int]]:
        return [(self.address + at * BLOCK, BLOCK, 0) for at in range(BLOCKS)]

    def block(self, number: int) -> np.ndarray:
        return self.memory[number * BLOCK : (number + 1) * BLOCK]

    def run(self, handle: Any, message: bytes = b"") -> str:
        state = self.agent.transfer(handle, message)
        deadline = time.monotonic() + 20
        while state == "PROC" and time.monotonic() < deadline:
            state = self.agent.check_xfer_state(handle)
            time.sleep(0.0002)
        return state

    def notifs(self, count: int) -> dict[str, list[bytes]]:
        """All that come until there are `count`."""
        found: dict[str, list[bytes]] = {}
        deadline = time.monotonic() + 20
        while sum(map(len, found.values())) < count and time.monotonic() < deadline:
            for name, messages in self.agent.get_new_notifs().items():
                found.setdefault(name, []).extend(messages)
            time.sleep(0.0002)
        return found


@pytest.fixture
def pair() -> tuple[Side, Side]:
    """A reader that knows an owner."""
    reader, owner = Side(fill=False, capture_telemetry=True), Side(fill=True)
    assert reader.knows(owner) == owner.name
    return reader, owner


def test_a_transfer_between_lists(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    ours = reader.agent.get_xfer_descs([(reader.address, 4096, 0), (reader.address + 4096, 4096, 0)], "DRAM")
    theirs = reader.agent.get_xfer_descs([(owner.address + 4096, 4096, 0), (owner.address, 4096, 0)], "DRAM")
    handle = reader.agent.initialize_xfer("READ", ours, theirs, owner.name, b"done")
    with pytest.raises(bindings.nixlNotPostedError):
        reader.agent.check_xfer_state(handle)
    assert reader.run(handle) == "DONE"
    assert np.array_equal(reader.memory[:4096], owner.memory[4096:8192])
    assert owner.notifs(1) == {reader.name: [b"done"]}
    told = reader.agent.get_xfer_telemetry(handle)
    assert (told.descCount, told.totalBytes) == (2, 8192)
    assert told.startTime > 0 and told.xferDuration >= 0 and told.postDuration >= 0
    assert reader.agent.query_xfer_backend(handle) == "UCX"
    reader.agent.release_xfer_handle(handle)


@pytest.mark.parametrize("kind", [list, np.int32, np.int64, np.uint64])
def test_prepared_lists_by_index(pair: tuple[Side, Side], kind: Any) -> None:
    reader, owner = pair
    ours = reader.agent.prep_xfer_dlist("NIXL_INIT_AGENT", reader.blocks(), "DRAM")
    theirs = reader.agent.prep_xfer_dlist(owner.name, np.array(owner.blocks(), dtype=np.uint64), "DRAM")
    to, source = [0, 1, 5, 63], [7, 8, 60, 0]
    numbers = (to, source) if kind is list else (np.array(to, dtype=kind), np.array(source, dtype=kind))
    handle = reader.agent.make_prepped_xfer("READ", ours, numbers[0], theirs, numbers[1], b"blocks")
    assert reader.run(handle) == "DONE"
    for here, there in zip(to, source, strict=True):
        assert np.array_equal(reader.block(here), owner.block(there))
    assert not reader.block(2).any()
    assert owner.notifs(1) == {reader.name: [b"blocks"]}


def test_a_handle_is_posted_again(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    descs = reader.agent.get_xfer_descs([(reader.address, 64, 0)], "DRAM")
    theirs = reader.agent.get_xfer_descs([(owner.address, 64, 0)], "DRAM")
    handle = reader.agent.initialize_xfer("READ", descs, theirs, owner.name)
    for round_ in range(3):
        owner.memory[:64] = round_ + 1
        assert reader.run(handle, b"round %d" % round_) == "DONE"
        assert (reader.memory[:64] == round_ + 1).all()
    found, sent = owner.notifs(3)[reader.name], [b"round 0", b"round 1", b"round 2"]
    assert found == sent if OURS else sorted(found) == sent  # the real package does not keep the order


def test_notifications_come_once_and_in_order(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    sent = [b"%d \xff\x00" % number for number in range(200)]
    for message in sent:
        reader.agent.send_notif(owner.name, message)
    found = owner.notifs(len(sent))
    assert list(found) == [reader.name]
    assert found[reader.name] == sent if OURS else sorted(found[reader.name]) == sorted(sent)
    assert owner.agent.get_new_notifs() == {}
    reader.agent.send_notif(owner.name, b"tag_1")
    deadline = time.monotonic() + 20
    while not owner.agent.check_remote_xfer_done(reader.name, b"tag") and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not owner.agent.check_remote_xfer_done(reader.name, b"tag")
    with pytest.raises(bindings.nixlNotFoundError):
        reader.agent.send_notif("nobody", b"x")


@pytest.mark.parametrize(
    ("ours", "theirs"), [([0, BLOCKS], [0, 1]), ([-1], [0]), ([0, 1], [0]), ([], [])], ids=str
)  # fmt: skip
def test_wrong_indices_are_invalid_parameters(pair: tuple[Side, Side], ours: list[int], theirs: list[int]) -> None:
    reader, owner = pair
    local = reader.agent.prep_xfer_dlist("", reader.blocks(), "DRAM")
    remote = reader.agent.prep_xfer_dlist(owner.name, owner.blocks(), "DRAM")
    with pytest.raises(bindings.nixlInvalidParamError):
        reader.agent.make_prepped_xfer("READ", local, ours, remote, theirs)
    with pytest.raises(bindings.nixlInvalidParamError):
        reader.agent.make_prepped_xfer("READ", remote, [0], local, [0])
    assert not reader.memory.any()


def test_wrong_ranges(pair: tuple[Side, Side]) -> None:
    reader, owner = pair

    def refused(kind: type[Exception], here: list[tuple[int, int, int]], there: list[tuple[int, int, int]]) -> None:
        lists = [reader.agent.get_xfer_descs(rows, "DRAM") for rows in (here, there)]
        with pytest.raises(kind):
            reader.agent.initialize_xfer("READ", *lists, owner.name)

    spare = np.zeros(64, dtype=np.uint8).ctypes.data
    mine, theirs = (reader.address, 64, 0), (owner.address, 64, 0)
    refused(bindings.nixlNotFoundError, [(spare, 64, 0)], [theirs])
    refused(bindings.nixlNotFoundError, [mine], [(spare, 64, 0)])
    refused(bindings.nixlNotFoundError, [mine], [(owner.address + BYTES - 10, 64, 0)])
    refused(bindings.nixlInvalidParamError, [mine], [theirs, theirs])
    refused(bindings.nixlInvalidParamError, [mine], [(owner.address, 32, 0)])
    for agent in ("", owner.name):
        with pytest.raises(bindings.nixlNotFoundError):
            reader.agent.prep_xfer_dlist(agent, [(spare, 64, 0)], "DRAM")
    with pytest.raises(bindings.nixlNotFoundError):
        reader.agent.prep_xfer_dlist("nobody", owner.blocks(), "DRAM")
    with pytest.raises(KeyError):
        reader.agent.initialize_xfer("MOVE", None, None, owner.name)


def test_registering_twice_needs_two_releases(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    again = reader.agent.register_memory([(reader.address, BYTES, 0, "")], "DRAM")
    reader.agent.deregister_memory(again)
    descs = reader.agent.get_xfer_descs([(reader.address, 64, 0)], "DRAM")
    theirs = reader.agent.get_xfer_descs([(owner.address, 64, 0)], "DRAM")
    assert reader.run(reader.agent.initialize_xfer("READ", descs, theirs, owner.name)) == "DONE"
    reader.agent.deregister_memory(reader.registered)
    with pytest.raises(bindings.nixlNotFoundError):
        reader.agent.deregister_memory(reader.registered)


def test_metadata(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    assert reader.agent.check_remote_metadata(owner.name)
    assert not reader.agent.check_remote_metadata("nobody")
    known = reader.agent.get_xfer_descs([(owner.address, 10, 0)], "DRAM")
    unknown = reader.agent.get_xfer_descs([(reader.address, 10, 0)], "DRAM")
    assert reader.agent.check_remote_metadata(owner.name, known)
    assert not reader.agent.check_remote_metadata(owner.name, unknown)
    assert reader.knows(owner) == owner.name  # loaded twice
    for blob in (b"", b"junk"):
        with pytest.raises(bindings.nixlMismatchError):
            reader.agent.add_remote_agent(blob)
    with pytest.raises(bindings.nixlInvalidParamError):
        reader.agent.add_remote_agent(reader.agent.get_agent_metadata())
    reader.agent.remove_remote_agent(owner.name)
    reader.agent.remove_remote_agent(owner.name)
    assert not reader.agent.check_remote_metadata(owner.name)


def test_descriptor_lists() -> None:
    agent = Side(fill=False).agent
    rows = [(4096, 64, 0), (8192, 128, 1)]
    descs = agent.get_xfer_descs(rows, "DRAM")
    assert descs.descCount() == 2 and descs[1] == rows[1] and descs.index(rows[1]) == 1
    assert descs == agent.get_xfer_descs(np.array(rows, dtype=np.uint64), "DRAM")
    assert pickle.loads(pickle.dumps(descs)) == descs
    assert agent.deserialize_descs(agent.get_serialized_descs(descs)) == descs
    registered = agent.get_reg_descs([(4096, 64, 0, "meta")], "DRAM")
    assert registered[0] == (4096, 64, 0, b"meta")
    assert registered.trim() == agent.get_xfer_descs([(4096, 64, 0)], "DRAM")
    with pytest.raises(bindings.nixlNotFoundError):
        descs.index((1, 2, 3))
    descs.append((1 << 40, 1, 0))
    descs.remDesc(0)
    assert [descs[at] for at in range(descs.descCount())] == [rows[1], (1 << 40, 1, 0)]
    assert agent.get_xfer_descs([(1, 2)], "DRAM") is None
    assert agent.get_xfer_descs(rows) is None
    with pytest.raises(TypeError):
        agent.register_memory([(4096, 64, 0)], "DRAM")  # three columns: no registration list


def test_backends() -> None:
    agent = Side(fill=False).agent
    assert "UCX" in agent.get_plugin_list()
    assert {"DRAM_SEG", "VRAM_SEG"} <= set(agent.get_plugin_mem_types("UCX"))
    with pytest.raises(bindings.nixlInvalidParamError):
        agent.create_backend("UCX")
    with pytest.raises(bindings.nixlNotFoundError):
        agent.create_backend("NOPE")
    assert agent.get_plugin_params("NOPE") == {}
    with pytest.raises(KeyError):
        agent.register_memory([(4096, 64, 0, "")], "DRAM", backends=["NOPE"])
    with pytest.raises(TypeError):
        api.nixl_agent_config(nosuch=1)
    with pytest.raises(TypeError):
        api.nixl_agent_config(sync_mode=1)


@only_ours
def test_metadata_cut_anywhere_is_refused(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    blob = owner.agent.get_agent_metadata()
    for size in range(len(blob)):
        with pytest.raises(bindings.nixlMismatchError):
            reader.agent.add_remote_agent(blob[:size])
    for at in range(len(blob)):
        with pytest.raises(bindings.nixlMismatchError):
            reader.agent.add_remote_agent(blob[:at] + bytes([blob[at] ^ 0x40]) + blob[at + 1 :])
    with pytest.raises(bindings.nixlMismatchError, match="of NIXL itself"):
        reader.agent.add_remote_agent(b"nixlSerDes|Agent" + bytes(64))


@only_ours
def test_metadata_of_an_earlier_life_is_refused(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    blob = owner.agent.get_agent_metadata()
    twin = api.nixl_agent(owner.name, api.nixl_agent_config())  # the name again, another engine
    with pytest.raises(bindings.nixlNotAllowedError):
        reader.agent.add_remote_agent(twin.get_agent_metadata())
    reader.agent.remove_remote_agent(owner.name)
    reader.agent.add_remote_agent(twin.get_agent_metadata())
    with pytest.raises(bindings.nixlNotAllowedError):
        reader.agent.add_remote_agent(blob)


@only_ours
def test_lists_of_memory_that_is_gone(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    ours = reader.agent.prep_xfer_dlist("", reader.blocks(), "DRAM")
    theirs = reader.agent.prep_xfer_dlist(owner.name, owner.blocks(), "DRAM")
    handle = reader.agent.make_prepped_xfer("READ", ours, [0, 9], theirs, [0, 9], b"never")
    owner.agent.deregister_memory(owner.registered)
    with pytest.raises(bindings.nixlBackendError, match="STALE"):
        reader.run(handle)
    # Registered again: the old list names the old registration.
    owner.agent.register_memory([(owner.address, BYTES, 0, "")], "DRAM")
    with pytest.raises(bindings.nixlBackendError, match="STALE"):
        reader.run(handle)
    assert not reader.memory.any()
    assert owner.agent.get_new_notifs() == {}
    reader.knows(owner)
    fresh = reader.agent.prep_xfer_dlist(owner.name, owner.blocks(), "DRAM")
    assert reader.run(reader.agent.make_prepped_xfer("READ", ours, [0], fresh, [3])) == "DONE"
    assert np.array_equal(reader.block(0), owner.block(3))


@only_ours
def test_a_list_used_after_its_release(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    ours = reader.agent.prep_xfer_dlist("", reader.blocks(), "DRAM")
    theirs = reader.agent.prep_xfer_dlist(owner.name, owner.blocks(), "DRAM")
    handle = reader.agent.make_prepped_xfer("READ", ours, [1], theirs, [1])
    reader.agent.release_dlist_handle(theirs)
    with pytest.raises(bindings.nixlInvalidParamError, match="released"):
        reader.agent.make_prepped_xfer("READ", ours, [0], theirs, [0])
    assert reader.run(handle) == "DONE"  # made before
    reader.agent.release_xfer_handle(handle)
    with pytest.raises(bindings.nixlInvalidParamError, match="released"):
        reader.agent.transfer(handle)


@only_ours
def test_overlapping_registrations_and_ranges_over_their_borders(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    memory = np.zeros(3 * 4096, dtype=np.uint8)
    base = memory.ctypes.data
    first = reader.agent.register_memory([(base, 8192, 0, "")], "DRAM")
    second = reader.agent.register_memory([(base + 4096, 8192, 0, "")], "DRAM")
    ours = reader.agent.prep_xfer_dlist("", [(base, 3 * 4096, 0)], "DRAM")
    theirs = reader.agent.prep_xfer_dlist(owner.name, [(owner.address, 3 * 4096, 0)], "DRAM")
    assert reader.run(reader.agent.make_prepped_xfer("READ", ours, [0], theirs, [0])) == "DONE"
    assert np.array_equal(memory, owner.memory[: 3 * 4096])
    reader.agent.deregister_memory(first)
    descs = reader.agent.get_xfer_descs([(base + 4096, 8192, 0)], "DRAM")
    remote = reader.agent.get_xfer_descs([(owner.address, 8192, 0)], "DRAM")
    assert reader.run(reader.agent.initialize_xfer("READ", descs, remote, owner.name)) == "DONE"
    assert np.array_equal(memory[4096:], owner.memory[:8192])
    reader.agent.deregister_memory(second)


@only_ours
def test_strided_lists(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    ours = reader.agent.prep_xfer_dlist("", np.array([[reader.address, 100, 0, 4, 200]], dtype=np.uint64), "DRAM")
    theirs = reader.agent.prep_xfer_dlist(
        owner.name, np.array([[owner.address, 100, 0, 4, 300]], dtype=np.uint64), "DRAM"
    )
    assert reader.run(reader.agent.make_prepped_xfer("READ", ours, [0, 3], theirs, [1, 2])) == "DONE"
    assert np.array_equal(reader.memory[:100], owner.memory[300:400])
    assert np.array_equal(reader.memory[600:700], owner.memory[600:700])


@only_ours
@pytest.mark.parametrize(("name", "value"), [("nosuch", "1"), ("ucx_devices", "mlx5_0"), ("num_threads", "many")])
def test_unknown_options_are_refused_by_name(name: str, value: str) -> None:
    agent = api.nixl_agent("options", api.nixl_agent_config(backends=[]))
    with pytest.raises(bindings.nixlInvalidParamError, match=name):
        agent.create_backend("UCX", {name: value})


@only_ours
def test_what_is_not_supported_says_so(pair: tuple[Side, Side]) -> None:
    reader, _ = pair
    with pytest.raises(bindings.nixlNotSupportedError):
        api.nixl_agent("listener", api.nixl_agent_config(enable_listen_thread=True))
    with pytest.raises(bindings.nixlNotSupportedError):
        reader.agent.send_local_metadata("127.0.0.1", 8888)
    with pytest.raises(bindings.nixlNotSupportedError):
        reader.agent.query_memory([(reader.address, 1, 0, "")], "UCX", "DRAM")
    with pytest.raises(bindings.nixlMismatchError):
        reader.agent.deserialize_descs(pickle.dumps(print))


@only_ours
def test_a_peer_that_is_gone(pair: tuple[Side, Side]) -> None:
    reader, owner = pair
    ours = reader.agent.prep_xfer_dlist("", reader.blocks(), "DRAM")
    theirs = reader.agent.prep_xfer_dlist(owner.name, owner.blocks(), "DRAM")
    handle = reader.agent.make_prepped_xfer("READ", ours, [0], theirs, [0])
    owner.agent.agent._closing()
    with pytest.raises((bindings.nixlRemoteDisconnectError, bindings.nixlBackendError)):
        reader.run(handle)
    assert not reader.memory.any()
