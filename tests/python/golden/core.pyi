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
    """Where memory lives."""

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
    """What became of one item of a request."""

    @property
    def status(self) -> Status: ...

    @property
    def bytes_done(self) -> int: ...

    def __repr__(self) -> str: ...

class BoundItems:
    """
    Items for one transfer, bound to the registrations they were described from.
    """

    def __len__(self) -> int: ...

class RemoteRegions:
    """What another engine described."""

    @property
    def engine_id(self) -> str: ...

    def __len__(self) -> int: ...

    def __getitem__(self, arg: int, /) -> tuple: ...

    def pairs(self, pairs: object) -> BoundItems:
        """
        [(local_addr, item, offset, nbytes), ...] for transfer_sync() and transfer_async().
        """

class Request:
    """A transfer that was submitted. Its status becomes final exactly once."""

    def status(self) -> TransferStatus: ...

    def wait(self, timeout_ms: int | None = None) -> TransferStatus:
        """
        Blocks until the status is final and returns it. Raises TimeoutError when timeout_ms pass first; the transfer goes on.
        """

    def cancel(self) -> None:
        """
        Ends it early; returns when nothing moves any more. No-op on a finished request.
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
        Listens on local_engine ("ip", "ip:port", "[::1]:0", "host:port"; port 0 or none: a free one) and nowhere else. options: a dict of str, docs/engine.md has them all. ADDR_IN_USE, PARAM_INVALID.
        """

    @property
    def id(self) -> str:
        """What peers pass to connect()."""

    def register_mem(self, addr: object, nbytes: object | None = None, mem_type: object | None = None) -> MemHandle:
        """
        Lets peers READ and WRITE [addr, addr + nbytes) from now on, and transfers of ours use it. That memory stays yours: keep it alive until deregister_mem() returned. Instead of an address: a contiguous torch tensor, an array, a host_pool() buffer; the engine keeps that object alive. The same range again gives the same handle, counted; another overlap is PARAM_INVALID. mem_type: "host" (the default), "device" or a MemType; device memory of an Ascend NPU must lie on 2 MiB boundaries (MISALIGNED).
        """

    def deregister_mem(self, handle: MemHandle, timeout_ms: int | None = 1000) -> None:
        """
        Refuses the region to everybody and returns when nothing moves in or out of it. BUSY: somebody alive still uses it after timeout_ms; it stays refused, call again to wait on. NOT_FOUND: no such handle.
        """

    def describe(self, ranges: object) -> bytes:
        """[(addr, nbytes), ...] as bytes that another engine can import."""

    def import_desc(self, blob: bytes) -> RemoteRegions:
        """
        What another engine described, as RemoteRegions. PARAM_INVALID: not such bytes.
        """

    def get_capability(self, name: str) -> int:
        """
        A switch (1 or 0) or a limit; docs/engine.md lists the names. PARAM_INVALID: unknown name.
        """

    def stats(self) -> dict:
        """
        A dict: regions, transfers under way, and of each peer which transports ran, bytes, and why not others.
        """

    def close(self) -> None:
        """
        Ends everything; returns when nothing moves and nobody can connect any more. Idempotent.
        """

    def __enter__(self) -> object: ...

    def __exit__(self, *args) -> None: ...

    def connect(self, remote_id: str, timeout_ms: int | None = 1000) -> None:
        """
        Connects to the engine of that id. ALREADY_CONNECTED, TIMEOUT, NOT_CONNECTED (nobody listens there), AUTH_FAILED, UNSUPPORTED (no transport reaches it), NOT_FOUND (no such host).
        """

    def disconnect(self, remote_id: str) -> None:
        """
        Ends transfers under way with CANCELLED and the connection; returns when nothing moves. NOT_CONNECTED.
        """

    def connect_async(self, remote_id: str, timeout_ms: int | None = 1000) -> None:
        """
        Queues a connect: in order for one remote, side by side for several; see get_async_connect_status(). RESOURCE_EXHAUSTED.
        """

    def disconnect_async(self, remote_id: str) -> None:
        """
        Queues a disconnect behind what is queued for that remote. RESOURCE_EXHAUSTED.
        """

    def get_async_connect_status(self, remote_id: str) -> TransferStatus:
        """
        TransferStatus of the latest connect_async or disconnect_async of that remote.
        """

    def get_async_connect_error(self, remote_id: str) -> object:
        """Why it failed, as an EngineError, or None."""

    def send_notify(self, remote_id: str, name: str, msg: object, timeout_ms: int | None = 1000) -> None:
        """
        Hands a named message (bytes) to the peer's engine and returns when it has it. NOTIFY_FAILED (its queue is full), TIMEOUT, NOT_CONNECTED, PEER_LOST, PARAM_INVALID (above get_capability("MAX_NOTIFY_BYTES")).
        """

    def get_notifies(self) -> list:
        """[(name, msg), ...] that have come, oldest first; does not block."""

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
        Moves all items: "READ" from the remote's memory into ours, "WRITE" the other way. descs: [(local_addr, remote_addr, nbytes), ...], an N x 3 array of uint64, or RemoteRegions.pairs(). On an error nothing moves any more: NOT_CONNECTED, PARAM_INVALID (names the item), STALE (that memory is gone), PEER_LOST, TIMEOUT.
        """

    def transfer_async(self, remote_id: str, op: str, descs: object, timeout_ms: int | None = None) -> Request:
        """
        As transfer_sync(), but returns a Request at once. The request ends TIMEOUT when timeout_ms pass first. Errors of the list are raised here; STALE gives a request that has FAILED.
        """

    def get_transfer_status(self, request: object) -> object:
        """TransferStatus of a request; of a list of them, a list."""

def known_transports() -> list: ...

class HostMemory:
    """
    Host memory that other processes can map. It goes back when this object is closed or gone AND no array, memoryview or tensor over it is left.
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
        """Lets go. Views keep the memory; calling it again has no effect."""

    def __len__(self) -> int: ...

    def __enter__(self) -> object: ...

    def __exit__(self, *args) -> None: ...

def host_pool(nbytes: int, alignment: int = 2097152) -> HostMemory:
    """
    One range of zeroed, exportable (memfd) host memory, e.g. for buffers that peers read and write.
    """

class HostPool:
    """
    A growing pool of exportable host memory: pre-faulted segments that are reused, announced to whoever registers memory, and given back by trim(). alignment: of every buffer, the page of the host by default. Thread-safe.
    """

    def __init__(self, *, alignment: int | None = None, max_bytes: int = 0, preallocate_bytes: int = 0, segment_bytes: int = 33554432, segment_bytes_max: int = 1073741824, gc_threshold: float = 0.0) -> None: ...

    def allocate(self, nbytes: int) -> HostMemory:
        """
        HostMemory of nbytes, aligned; its block is reused when the last view of it is gone.
        """

    def trim(self) -> int:
        """Gives idle segments back to the system; returns their bytes."""

    def stats(self) -> dict: ...

    def segments(self) -> list: ...

    def subscribe(self, on_segment_added: object | None, on_segment_dropped: object | None) -> int:
        """
        Calls on_segment_added(segment) for each segment there is and will be, before its first block is handed out, and on_segment_dropped(segment) before its memory goes back. Returns a number for unsubscribe().
        """

    def unsubscribe(self, subscription: int) -> None: ...

class Fetch:
    """One object on its way; made by Exchange.fetch()."""

    def wait(self, timeout_ms: int | None = None) -> str:
        """
        Blocks without polling until it has ended (DONE, FAILED, ABORTED) or the time is over (RUNNING).
        """

    def abort(self) -> None:
        """Returns when the targets are quiet."""

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
        """False when there is no such object (any more)."""

    def find(self, object_id: str) -> object:
        """(bytes, tensors) of a published object, or None."""

    def memory_gone(self, memory: int) -> None:
        """
        The memory of this number is about to be freed: ends its registrations.
        """

    def fetch(self, object_id: str, engine_id: str, meta_version: int, desc: bytes, targets: Sequence, connect_timeout_ms: int, transfer_timeout_ms: int | None = None) -> Fetch: ...

    def abort(self, object_id: str) -> int:
        """Aborts the fetches of the object that run now; how many there were."""

    def stats(self) -> dict: ...

class ReceiveBlock:
    """A writable buffer out of a ReceivePool."""

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
        """Gives unused segments back to the system; bytes given back."""

    def stats(self) -> dict: ...

class VersionStamp:
    """Lets readers tell a whole version of some memory from a torn one."""

    def __init__(self) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def version(self) -> int: ...

    def begin(self) -> None:
        """Readers refuse what they read from now on."""

    def end(self) -> int:
        """-> the new version; the memory is whole again."""

    @staticmethod
    def read(bytes: bytes) -> int | None:
        """The version in a copy of the stamp, or None while it is being written."""
