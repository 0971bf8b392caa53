"""`mooncake.engine` over the engine of onesided: one-sided transfers between sessions "host:port".

Return codes are those of Mooncake 0.3.13; the reason of each failure is in the log "onesided.compat".
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from onesided.compat.opening import host_of, log, open_engine, register
from onesided.engine import Engine, EngineError, MemHandle, Request, Status, TransferStatus
from onesided.host_memory import HostMemory, host_pool

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = SUPPORT_INTRA_NVLINK = SUPPORT_MNNVL = SUPPORT_MUSA = False

# Codes as Mooncake's functions return them.
FAILED = -1
NO_SUCH_BUFFER = -3
OVERLAPPED = -7
UNREACHABLE = -102
TIMED_OUT = -2
_PROTOCOLS = ("rdma", "tcp", "ascend")


class TransferOpcode(enum.IntEnum):
    """The direction of a transfer, seen from the caller."""

    Read = 0
    Write = 1


Opcode = TransferOpcode  # inside TransferEngine the name is an attribute
Read = TransferOpcode.Read
Write = TransferOpcode.Write


class TransferNotify:
    """A small named message that follows a transfer. A value."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg


class InnerTransferEngine:
    """Stands for the engine where Mooncake hands out its C++ object. Opaque; keeps the engine alive."""

    def __init__(self, owner: TransferEngine) -> None:
        self._owner = owner


def _words(values: Sequence[int], what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.uint64).reshape(-1)
    except (OverflowError, ValueError, TypeError):
        raise TypeError(f"{what}: expected a list of integers from 0 to 2^64 - 1") from None


def _word(value: int, what: str) -> int:
    if not isinstance(value, (int, np.integer)) or value < 0 or value >= 1 << 64:
        raise TypeError(f"{what}: expected an integer from 0 to 2^64 - 1, got {value!r}")
    return int(value)


def _timeout_ms() -> int:
    """Mooncake's own variable: seconds, at least 5."""
    try:
        return max(5, int(os.environ.get("MC_TRANSFER_TIMEOUT", "30"))) * 1000
    except ValueError:
        return 30_000


class TransferEngine:
    """One engine and what Mooncake's callers know of it. Thread-safe."""

    TransferOpcode = TransferOpcode
    _api = "mooncake"

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._arguments: tuple[str, ...] = ()
        self._lock = threading.Lock()
        # Under the lock:
        self._buffers: dict[int, tuple[int, MemHandle]] = {}
        self._managed: dict[int, HostMemory] = {}
        self._requests: dict[int, Request] = {}
        self._last_id = 0

    # ---- setting up ----

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Opens the engine on a free port of that host; peers name it "host:port" with get_rpc_port(). 0 or -1."""
        arguments = (local_hostname, metadata_server, protocol, device_name)
        if any(not isinstance(argument, str) for argument in arguments):
            raise TypeError("initialize(local_hostname, metadata_server, protocol, device_name): expected four strings")
        if metadata_server != "P2PHANDSHAKE":
            return self._refuse(f'initialize: metadata_server {metadata_server!r}: only "P2PHANDSHAKE" is supported')
        if protocol not in _PROTOCOLS:
            return self._refuse(f"initialize: protocol {protocol!r}: expected one of {', '.join(_PROTOCOLS)}")
        if device_name and protocol != "ascend":
            return self._refuse(f'initialize: device_name {device_name!r}: no RDMA device is used; pass ""')
        with self._lock:
            if self._engine is not None:
                if arguments == self._arguments:
                    return 0
                return self._refuse(f"initialize{arguments}: this engine runs already with {self._arguments}")
            try:
                self._engine = open_engine(f"{host_of(local_hostname)}:0")
            except EngineError as error:
                return self._refuse(f"initialize({local_hostname!r}): {error}")
            self._arguments = arguments
        return 0

    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str
    ) -> int:
        """As initialize(); `metadata_type` must be empty, since there is no metadata server."""
        if metadata_type:
            return self._refuse(
                f'initialize_ext: metadata type {metadata_type!r}: there is no metadata server; pass ""'
            )
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    def get_rpc_port(self) -> int:
        """The port that peers name; 0 before initialize()."""
        return int(self._engine.id.rpartition(":")[2]) if self._engine else 0

    def get_engine(self) -> InnerTransferEngine:
        """An opaque object for APIs that pass the engine on."""
        return InnerTransferEngine(self)

    def get_engine_ptr(self) -> int:
        """0: there is no object of Mooncake's C++ class behind this engine."""
        self._refuse("get_engine_ptr: onesided has no mooncake::TransferEngine object; use this Python API")
        return 0

    def get_local_topology(self, device_name: str | None = None) -> str:
        """JSON as Mooncake writes it: by location, the preferred and the other network devices. None are used."""
        return json.dumps({"cpu:0": [[], []]}, indent="\t") + "\n"

    def warmup_efa_segment(self, segment_name: str) -> int:
        """0, as a Mooncake without EFA: there is nothing to warm up."""
        return 0

    # ---- memory ----

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Lets peers read and write the range. 0; -7: it overlaps a registered one; -1: anything else, see the log."""
        return self._add(_word(buffer_addr, "buffer_addr"), _word(capacity, "capacity"), location)

    def unregister_memory(self, buffer_addr: int) -> int:
        """Returns when no byte of the buffer can move. 0; -3: no buffer is registered at this address."""
        address = _word(buffer_addr, "buffer_addr")
        with self._lock:
            known = self._buffers.pop(address, None)
        if known is None:
            self._refuse(f"unregister_memory({address:#x}): no buffer is registered at this address")
            return NO_SUCH_BUFFER
        try:
            self._opened().deregister_mem(known[1], None)
        except EngineError as error:
            return self._refuse(f"unregister_memory({address:#x}): {error}")
        return 0

    def batch_register_memory(self, buffer_addresses: list[int], capacities: list[int], location: str = "*") -> int:
        """All of them or none. 0, or the code of the first that failed."""
        addresses, sizes = _words(buffer_addresses, "buffer_addresses"), _words(capacities, "capacities")
        if len(addresses) != len(sizes):
            return self._refuse(f"batch_register_memory: {len(addresses)} addresses and {len(sizes)} capacities")
        done: list[int] = []
        for address, nbytes in zip(addresses.tolist(), sizes.tolist(), strict=True):
            code = self._add(address, nbytes, location)
            if code != 0:
                for added in done:
                    self.unregister_memory(added)
                return code
            done.append(address)
        return 0

    def batch_unregister_memory(self, buffer_addresses: list[int]) -> int:
        """Each of them. 0, or the code of the first that failed."""
        codes = [self.unregister_memory(address) for address in _words(buffer_addresses, "buffer_addresses").tolist()]
        return next((code for code in codes if code != 0), 0)

    def get_first_buffer_address(self, segment_name: str) -> int:
        """The lowest registered address of this engine itself; 0 for a peer, whose list is not published."""
        if self._engine is not None and segment_name == self._engine.id:
            with self._lock:
                return next(iter(self._buffers), 0)
        self._refuse(f"get_first_buffer_address({segment_name!r}): a peer passes its addresses on by itself")
        return 0

    def allocate_managed_buffer(self, length: int) -> int:
        """Registered host memory that other processes can map; its address, 0 on failure."""
        try:
            memory = host_pool(_word(length, "length"))
        except (EngineError, MemoryError) as error:
            self._refuse(f"allocate_managed_buffer({length}): {error}")
            return 0
        if self._add(memory.addr, memory.nbytes, "cpu:0") != 0:
            return 0
        with self._lock:
            self._managed[memory.addr] = memory
        return memory.addr

    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """0, or -1 for an address that allocate_managed_buffer() did not return."""
        with self._lock:
            memory = self._managed.pop(buffer_addr, None)
        if memory is None:
            return self._refuse(f"free_managed_buffer({buffer_addr:#x}): not a managed buffer")
        code = self.unregister_memory(buffer_addr)
        memory.close()
        return code

    def write_bytes_to_buffer(self, dest_address: int, src: str | bytes, length: int) -> int:
        """Copies the first `length` bytes into registered host memory. 0 or -1."""
        data = src.encode() if isinstance(src, str) else bytes(src)
        if length > len(data) or not self._owns(dest_address, length):
            return self._refuse(f"write_bytes_to_buffer({dest_address:#x}, {len(data)} bytes, {length}): out of range")
        ctypes.memmove(dest_address, data, length)
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """`length` bytes of registered host memory. RuntimeError: it is not registered."""
        if not self._owns(source_address, length):
            raise RuntimeError(f"read_bytes_from_buffer({source_address:#x}, {length}): not registered memory")
        return ctypes.string_at(source_address, length)

    # ---- transfers that return when they have ended ----

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: Opcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        """Moves one range; then hands `notify` to the peer. 0 or -1."""
        row = [_word(v, w) for v, w in ((buffer, "buffer"), (peer_buffer_address, "peer"), (length, "length"))]
        return self._move(target_hostname, opcode, np.array([row], dtype=np.uint64), notify, transport_hint)

    def transfer_sync_read(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Reads one range of the peer's memory into ours. 0 or -1."""
        return self.transfer_sync(
            target_hostname, buffer, peer_buffer_address, length, Read, transport_hint=transport_hint
        )

    def transfer_sync_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Writes one range of our memory into the peer's. 0 or -1."""
        return self.transfer_sync(
            target_hostname, buffer, peer_buffer_address, length, Write, transport_hint=transport_hint
        )

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: Opcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        """Moves all ranges or fails as a whole; then hands `notify` to the peer. 0 or -1."""
        items = self._items(buffers, peer_buffer_addresses, lengths)
        return FAILED if items is None else self._move(target_hostname, opcode, items, notify, transport_hint)

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """batch_transfer_sync() with Read."""
        return self.batch_transfer_sync(
            target_hostname, buffers, peer_buffer_addresses, lengths, Read, transport_hint=transport_hint
        )

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """batch_transfer_sync() with Write."""
        return self.batch_transfer_sync(
            target_hostname, buffers, peer_buffer_addresses, lengths, Write, transport_hint=transport_hint
        )

    # ---- transfers that are asked about later ----

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: Opcode,
        transport_hint: str = "",
    ) -> int:
        """Starts moving all ranges. A number for get_batch_transfer_status(), 0 on failure."""
        items = self._items(buffers, peer_buffer_addresses, lengths)
        if items is None or not self._hint_is_known(transport_hint):
            return 0
        if len(items) == 0:
            self._refuse("batch_transfer_async: the list is empty")
            return 0
        return self._submit(target_hostname, opcode, items)

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """batch_transfer_async() with Read."""
        return self.batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, Read, transport_hint)

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """batch_transfer_async() with Write."""
        return self.batch_transfer_async(
            target_hostname, buffers, peer_buffer_addresses, lengths, Write, transport_hint
        )

    def get_batch_transfer_status(self, batch_ids: list[int]) -> int:
        """Blocks until all of them have ended, and forgets them. 0; -1: one failed or is unknown."""
        code = 0
        for number in _words(batch_ids, "batch_ids").tolist():
            with self._lock:
                request = self._requests.pop(number, None)
            if request is None:
                code = self._refuse(f"get_batch_transfer_status: no transfer has the number {number}")
            elif request.wait() != TransferStatus.COMPLETED:
                code = self._refuse(f"transfer {number}: {request.error}")
        return code

    def transfer_submit_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Starts one write. A number for transfer_check_status(), -1 on failure."""
        row = [_word(v, w) for v, w in ((buffer, "buffer"), (peer_buffer_address, "peer"), (length, "length"))]
        if not self._hint_is_known(transport_hint):
            return FAILED
        return self._submit(target_hostname, Write, np.array([row], dtype=np.uint64)) or FAILED

    def transfer_check_status(self, batch_id: int) -> int:
        """1: completed, 0: under way, -1: failed or unknown, -2: its time is over. Forgets it once it has ended."""
        number = _word(batch_id, "batch_id")
        with self._lock:
            request = self._requests.get(number)
            if request is None:
                return self._refuse(f"transfer_check_status: no transfer has the number {number}")
            status = request.status()
            if status != TransferStatus.WAITING:
                del self._requests[number]
        if status == TransferStatus.FAILED:
            self._refuse(f"transfer {number}: {request.error}")
        return {TransferStatus.WAITING: 0, TransferStatus.COMPLETED: 1, TransferStatus.TIMEOUT: TIMED_OUT}.get(
            status, FAILED
        )

    # ---- peers ----

    def get_notifies(self) -> list[TransferNotify]:
        """All notifications that have come, each exactly once, oldest first."""
        if self._engine is None:
            return []
        return [TransferNotify(name, message.decode(errors="replace")) for name, message in self._engine.get_notifies()]

    def send_probe(self, peer_server_name: str) -> int:
        """0 when the peer can be reached, -102 when it cannot."""
        try:
            self._opened().connect(peer_server_name)
        except EngineError as error:
            if error.status != Status.ALREADY_CONNECTED and peer_server_name != self._opened().id:
                self._refuse(f"send_probe({peer_server_name!r}): {error}")
                return UNREACHABLE
        except RuntimeError as error:
            return self._refuse(f"send_probe: {error}")
        return 0

    # ---- inside ----

    def _refuse(self, text: str) -> int:
        log.error("%s: %s", self._api, text)
        return FAILED

    def _opened(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("call initialize() first")
        return self._engine

    def _add(self, address: int, nbytes: int, location: str) -> int:
        kind = {"*": None, "cpu": "host", "npu": "device", "cuda": "device"}.get(location.partition(":")[0], "?")
        if kind == "?":
            return self._refuse(f"register_memory: location {location!r}: expected *, cpu:N or npu:N")
        if self._engine is None:
            return self._refuse("register_memory: call initialize() first")
        with self._lock:
            for start, (length, _) in self._buffers.items():
                if address < start + length and start < address + nbytes:
                    self._refuse(
                        f"register_memory({address:#x}, {nbytes}): overlaps the registered buffer {start:#x} + {length}"
                    )
                    return OVERLAPPED
            try:
                self._buffers[address] = (nbytes, register(self._engine, address, nbytes, kind))
            except EngineError as error:
                return self._refuse(f"register_memory({address:#x}, {nbytes}): {error}")
        return 0

    def _owns(self, address: int, nbytes: int) -> bool:
        with self._lock:
            return any(
                start <= address and address + nbytes <= start + length for start, (length, _) in self._buffers.items()
            )

    def _items(self, local: list[int], remote: list[int], lengths: list[int]) -> np.ndarray | None:
        columns = [_words(local, "buffers"), _words(remote, "peer_buffer_addresses"), _words(lengths, "lengths")]
        if len({len(column) for column in columns}) != 1:
            sizes = ", ".join(str(len(column)) for column in columns)
            self._refuse(f"{sizes} buffers, peer buffers and lengths: the lists must be equally long")
            return None
        return np.stack(columns, axis=1)

    def _hint_is_known(self, hint: str) -> bool:
        if hint in ("", *_PROTOCOLS):
            return True
        self._refuse(f"transport_hint {hint!r}: expected one of {', '.join(_PROTOCOLS)}, or nothing")
        return False

    def _move(self, session: str, opcode: Opcode, items: np.ndarray, notify: TransferNotify | None, hint: str) -> int:
        if not self._hint_is_known(hint):
            return FAILED
        items = items[items[:, 2] > 0] if (items[:, 2] == 0).any() else items  # nothing to move: Mooncake says 0
        operation = "READ" if opcode == Read else "WRITE"
        try:
            engine = self._opened()
            if len(items):
                engine.transfer_sync(session, operation, np.ascontiguousarray(items), _timeout_ms())
            if notify is not None:
                engine.send_notify(session, notify.name, notify.msg.encode())
        except (EngineError, RuntimeError) as error:
            return self._refuse(f"{operation} of {len(items)} ranges, {session!r}: {error}")
        return 0

    def _submit(self, session: str, opcode: Opcode, items: np.ndarray) -> int:
        operation = "READ" if opcode == Read else "WRITE"
        try:
            request: Any = self._opened().transfer_async(session, operation, np.ascontiguousarray(items), _timeout_ms())
        except (EngineError, RuntimeError) as error:
            self._refuse(f"{operation} of {len(items)} ranges, {session!r}: {error}")
            return 0
        with self._lock:
            self._last_id += 1
            self._requests[self._last_id] = request
            return self._last_id
