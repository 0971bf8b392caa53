"""The C++ core of onesided."""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray

from onesided import EngineError as EngineError


def version() -> str: ...

class Status(enum.IntEnum):
    """Outcomes, with HIXL's names and values."""

    SUCCESS = 0

    PARAM_INVALID = 103900

    TIMEOUT = 103901

    NOT_CONNECTED = 103902

    ALREADY_CONNECTED = 103903

    NOTIFY_FAILED = 103904

    UNSUPPORTED = 103905

    RESOURCE_EXHAUSTED = 203900

    FAILED = 503900

    STALE = 910001

    BUSY = 910002

    ADDR_IN_USE = 910003

    NOT_FOUND = 910004

    PEER_LOST = 910005

    AUTH_FAILED = 910006

    CANCELLED = 910007

    MISALIGNED = 910008

    CLOSED = 910009

class MemType(enum.Enum):
    """The kind of memory: host or device."""

    HOST = 0

    DEVICE = 1

class MemHandle:
    """Registered memory, as register_mem() returned it."""

    def __eq__(self, arg: MemHandle, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

class TransferStatus(enum.IntEnum):
    """The four statuses of a request."""

    WAITING = 0

    COMPLETED = 1

    TIMEOUT = 2

    FAILED = 3

class ItemResult:
    """The result of one item of a request."""

    @property
    def status(self) -> Status: ...

    @property
    def bytes_done(self) -> int: ...

    def __repr__(self) -> str: ...

class BoundItems:
    """
    Items for one transfer, bound to the registrations from which they were described.
    """

    def __len__(self) -> int: ...

class RemoteRegions:
    """The memory ranges that another engine described."""

    @property
    def engine_id(self) -> str: ...

    def __len__(self) -> int: ...

    def __getitem__(self, arg: int, /) -> tuple: ...

    def pairs(self, pairs: object) -> BoundItems:
        """
        Binds [(local_addr, item, offset, nbytes), ...] for transfer_sync() and transfer_async(); rows as there.
        """

class Request:
    """A submitted transfer. Its status becomes final exactly once."""

    def status(self) -> TransferStatus: ...

    def wait(self, timeout_ms: int | None = None) -> TransferStatus:
        """
        Blocks until the status is final and returns it. Raises TimeoutError if timeout_ms pass first; the transfer continues.
        """

    def cancel(self) -> None:
        """
        Ends it early; blocks until no byte of it can move. No-op on a finished request.
        """

    @property
    def error(self) -> object:
        """The first cause as an EngineError (.status, .text), or None."""

    @property
    def bytes_done(self) -> int: ...

    @property
    def elapsed_us(self) -> int:
        """Microseconds from its submission to its end, or to now."""

    @property
    def items(self) -> list: ...

    def __repr__(self) -> str: ...

class PreparedList:
    """
    Ranges of one side, checked and bound once; Engine.transfer() names them by index.
    """

    def __len__(self) -> int: ...

    def release(self) -> None:
        """
        Forgets the ranges; transfers that were submitted go on. Using the list afterwards is PARAM_INVALID.
        """

class Engine:
    """One engine: a listener, registered memory, connections. Thread-safe."""

    def __init__(self, local_engine: str = '127.0.0.1', options: dict | None = None) -> None:
        """
        Listens on local_engine ("ip", "ip:port", "[::1]:0", "host:port"; port 0 or none: a free one) and on no other address. options: a dict of str; docs/engine.md lists them. Errors: ADDR_IN_USE, PARAM_INVALID.
        """

    @property
    def id(self) -> str:
        """The id that peers pass to connect()."""

    def register_mem(self, addr: object, nbytes: object | None = None, mem_type: object | None = None) -> MemHandle:
        """
        Allows peers to READ and WRITE [addr, addr + nbytes), and this engine's transfers to use it. The caller owns the memory and keeps it alive until deregister_mem() has returned. Instead of an address: a contiguous torch tensor, an array, a host_pool() buffer; the engine keeps that object alive. The same range again gives the same handle, counted; another overlap is PARAM_INVALID. mem_type: "host" (the default), "device" or a MemType; device memory of an Ascend NPU must lie on 2 MiB boundaries (MISALIGNED).
        """

    def deregister_mem(self, handle: MemHandle, timeout_ms: int | None = 1000) -> None:
        """
        Refuses new transfers of the region and blocks until no byte can move in or out of it. BUSY: the region is still in use after timeout_ms; it accepts no new transfers, and another call waits again. NOT_FOUND: no such handle.
        """

    def describe(self, ranges: object) -> bytes:
        """Encodes [(addr, nbytes), ...] as bytes that another engine can import."""

    def import_desc(self, blob: bytes) -> RemoteRegions:
        """
        Decodes the bytes of another engine's describe() as RemoteRegions. PARAM_INVALID: not such bytes.
        """

    def get_capability(self, name: str) -> int:
        """
        The value of a capability: a switch (1 or 0) or a limit; docs/engine.md lists the names. PARAM_INVALID: unknown name.
        """

    def stats(self) -> dict:
        """
        A dict: regions, unfinished transfers, and for each peer the transports in use with their bytes, and the reasons why others are not used.
        """

    def close(self) -> None:
        """
        Ends all transfers and connections; blocks until no byte can move and no peer can connect. Idempotent.
        """

    def __enter__(self) -> object: ...

    def __exit__(self, *args) -> None: ...

    def connect(self, remote_id: str, timeout_ms: int | None = 1000) -> None:
        """
        Connects to the engine with that id. Errors: ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (no engine listens there), AUTH_FAILED, UNSUPPORTED (no transport reaches it), NOT_FOUND (no such host).
        """

    def disconnect(self, remote_id: str) -> None:
        """
        Ends unfinished transfers with CANCELLED and closes the connection; blocks until no byte can move. Error: NOT_CONNECTED.
        """

    def connect_async(self, remote_id: str, timeout_ms: int | None = 1000) -> None:
        """
        Queues a connect. Operations for one remote run in order, those for different remotes concurrently; see get_async_connect_status(). RESOURCE_EXHAUSTED.
        """

    def disconnect_async(self, remote_id: str) -> None:
        """
        Queues a disconnect after the queued operations for that remote. Error: RESOURCE_EXHAUSTED.
        """

    def get_async_connect_status(self, remote_id: str) -> TransferStatus:
        """
        The TransferStatus of the latest connect_async or disconnect_async of that remote.
        """

    def get_async_connect_error(self, remote_id: str) -> object:
        """
        The error of the latest connect_async or disconnect_async as an EngineError, or None.
        """

    def send_notify(self, remote_id: str, name: str, msg: object, timeout_ms: int | None = 1000) -> None:
        """
        Sends a named message (bytes) and blocks until the peer's engine has received it. Errors: NOTIFY_FAILED (its queue is full), TIMEOUT, NOT_CONNECTED, PEER_LOST, PARAM_INVALID (above get_capability("MAX_NOTIFY_BYTES")).
        """

    def get_notifies(self) -> list:
        """
        Received notifications as [(name, msg), ...], oldest first; does not block.
        """

    def prepare_local(self, ranges: object) -> PreparedList:
        """
        Registered ranges of this engine as a PreparedList: [(addr, nbytes), ...] or an N x 2 array of uint64. PARAM_INVALID: a range lies in no single registered region.
        """

    def prepare_remote(self, remote: object, ranges: object, timeout_ms: int | None = 1000) -> PreparedList:
        """
        The same of another engine: by its id, what it has registered now; by RemoteRegions, what it described.
        """

    def transfer(self, op: str, local: PreparedList, local_indices: object, remote: PreparedList, remote_indices: object, timeout_ms: int | None = None) -> Request:
        """
        Moves local range local_indices[i] from ("READ") or to ("WRITE") remote range remote_indices[i], for all i, and returns a Request at once. Indices: an array of 32- or 64-bit integers, not copied, or a list of ints. PARAM_INVALID: an index out of range, lengths that differ, a released list. A list whose region was deregistered gives a request that has FAILED with STALE.
        """

    def transfer_sync(self, remote_id: str, op: str, descs: object, timeout_ms: int | None = 1000) -> None:
        """
        Moves all items and blocks until they have moved: "READ" from the remote's memory into the local memory, "WRITE" in the other direction. descs: [(local_addr, remote_addr, nbytes), ...], an N x 3 array of uint64, or RemoteRegions.pairs(). An item of rows has three numbers more: row_bytes, local_pitch, remote_pitch; its nbytes is that of all rows (at most 2^20). After an error no byte can move. Errors: NOT_CONNECTED, PARAM_INVALID (names the item), STALE (that memory was deregistered), PEER_LOST, TIMEOUT.
        """

    def transfer_async(self, remote_id: str, op: str, descs: object, timeout_ms: int | None = None) -> Request:
        """
        As transfer_sync(), but returns a Request without waiting. If timeout_ms pass first, the request ends with TIMEOUT. Errors of the list are raised here; STALE gives a request that has FAILED.
        """

    def get_transfer_status(self, request: object) -> object:
        """
        The TransferStatus of a request, or a list of them for a list of requests.
        """

def known_transports() -> list: ...

class HostMemory:
    """
    Host memory that other processes can map. It is freed when this object is closed or deleted AND no array, memoryview or tensor uses it.
    """

    @property
    def addr(self) -> int:
        """Address of the first byte."""

    @property
    def nbytes(self) -> int: ...

    def numpy(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """The bytes as a writable uint8 array, without a copy."""

    def memoryview(self) -> object:
        """The bytes as a writable memoryview, without a copy."""

    def close(self) -> None:
        """Releases the memory, which existing views keep alive. Idempotent."""

    def __len__(self) -> int: ...

    def __enter__(self) -> object: ...

    def __exit__(self, *args) -> None: ...

def host_pool(nbytes: int, alignment: int = 2097152) -> HostMemory:
    """
    One range of zeroed, exportable (memfd) host memory, e.g. for buffers that peers read and write.
    """

class HostPool:
    """
    A growing pool of exportable host memory. Its pre-faulted segments are reused, announced to subscribers, and freed by trim(). alignment: of every buffer, in bytes; by default the page of the host. Thread-safe.
    """

    def __init__(self, *, alignment: int | None = None, max_bytes: int = 0, preallocate_bytes: int = 0, segment_bytes: int = 33554432, segment_bytes_max: int = 1073741824, gc_threshold: float = 0.0) -> None: ...

    def allocate(self, nbytes: int) -> HostMemory:
        """
        Aligned HostMemory of nbytes; its block is reused when its last view is deleted.
        """

    def trim(self) -> int:
        """Frees idle segments; returns their bytes."""

    def stats(self) -> dict: ...

    def segments(self) -> list: ...

    def subscribe(self, on_segment_added: object | None, on_segment_dropped: object | None) -> int:
        """
        Calls on_segment_added(segment) for each existing and future segment, before its first block is handed out, and on_segment_dropped(segment) before its memory is freed. Returns a number for unsubscribe().
        """

    def unsubscribe(self, subscription: int) -> None: ...

class Fetch:
    """The fetch of one object; made by Exchange.fetch()."""

    def wait(self, timeout_ms: int | None = None) -> str:
        """
        Blocks without polling until it has ended (DONE, FAILED, ABORTED) or timeout_ms have passed (RUNNING).
        """

    def abort(self) -> None:
        """Blocks until no byte can be written into the targets."""

    @property
    def state(self) -> str: ...

    @property
    def error(self) -> object:
        """(status, text), or None."""

    @property
    def nbytes(self) -> int: ...

    @property
    def elapsed_us(self) -> int: ...

class Exchange:
    """Published objects and fetches of one engine. Thread-safe."""

    def __init__(self, engine: Engine, max_peers: int = 1000, keep_idle: bool = True) -> None: ...

    def publish(self, object_id: str, tensors: Sequence) -> tuple:
        """-> (description, meta version)"""

    def release(self, object_id: str) -> bool:
        """Unpublishes the object. False if there is no such object."""

    def find(self, object_id: str) -> object:
        """(bytes, tensors) of a published object, or None."""

    def memory_gone(self, memory: int) -> None:
        """
        The memory of this number is about to be freed: ends its registrations.
        """

    def fetch(self, object_id: str, engine_id: str, meta_version: int, desc: bytes, targets: Sequence, connect_timeout_ms: int, transfer_timeout_ms: int | None = None) -> Fetch: ...

    def abort(self, object_id: str) -> int:
        """Aborts the running fetches of the object; returns their number."""

    def stats(self) -> dict: ...

class ReceiveBlock:
    """A writable buffer from a ReceivePool."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

class ReceivePool:
    """Host memory for received objects, registered once. Thread-safe."""

    def __init__(self, exchange: Exchange, max_bytes: int = 0) -> None: ...

    def allocate(self, sizes: Sequence[int]) -> list:
        """One block for each size (> 0 bytes), or none at all."""

    def trim(self) -> int:
        """Frees unused segments; returns their bytes."""

    def stats(self) -> dict: ...

class VersionStamp:
    """
    Lets readers distinguish a complete version of some memory from a partly written one.
    """

    def __init__(self) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def version(self) -> int: ...

    def begin(self) -> None:
        """Starts an update: readers refuse data that they read from now on."""

    def end_as(self, version: int) -> bool:
        """
        Ends the update with this version. False, and nothing changes, unless it is greater than every earlier one.
        """

    def end(self) -> int:
        """Ends the update; returns the new version."""

    @staticmethod
    def read(bytes: bytes) -> int | None:
        """The version in a copy of the stamp, or None while it is being written."""

class BoxPlanner:
    """
    Which bytes of which holder go where, for parameters that lie in boxes. Confined to a thread.
    """

    def __init__(self) -> None: ...

    def add_parameters(self, names: Sequence[str], table: bytes) -> None:
        """
        Per parameter: bytes of an element, number of dimensions, global shape.
        """

    def add_sources(self, holder: int, table: bytes) -> None:
        """
        Boxes: parameter, described range, byte offset in it; offsets, sizes, strides in bytes. PARAM_INVALID.
        """

    def add_targets(self, table: bytes) -> None:
        """
        Boxes: parameter, phase, address; offsets, sizes, strides in bytes. PARAM_INVALID.
        """

    def plan(self, reader: int = 0) -> list:
        """
        [(phase, holder, bytes, words of its moves)]. PARAM_INVALID: a hole or an overlap; names the parameter.
        """
