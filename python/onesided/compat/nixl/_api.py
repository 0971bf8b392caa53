"""`nixl._api`: the agent that frameworks use, over nixlAgent."""

from __future__ import annotations

import contextlib
import copyreg
import enum
import io
import pickle
import sys
from typing import Any

import numpy as np

from onesided.compat.nixl import _bindings
from onesided.compat.nixl._bindings import (
    DEFAULT_COMM_PORT,
    nixl_mem_t,
    nixlAgent,
    nixlAgentConfig,
    nixlMismatchError,
    nixlRegDList,
    nixlRemoteDList,
    nixlXferDList,
    nixlXferTelemetry,
)
from onesided.compat.nixl.codes import refusal
from onesided.compat.opening import log

nixlBind = _bindings
nixl_backend_handle = int


class nixl_prepped_dlist_handle:
    """A prepared list of one agent; released with the object at the latest."""

    __slots__ = ("_agent", "_handle", "_released")

    def __init__(self, agent: nixlAgent, value: int) -> None:
        self._agent, self._handle, self._released = agent, int(value), False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._handle:#x}, released={self._released})"

    def release(self) -> None:
        """Forgets the list. Calling it again has no effect."""
        if not self._released:
            self._agent.releasedDlistH(self._handle)
            self._released = True

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.release()


class nixl_xfer_handle:
    """A transfer of one agent; released with the object at the latest."""

    __slots__ = ("_agent", "_handle", "_released")

    def __init__(self, agent: nixlAgent, value: int) -> None:
        self._agent, self._handle, self._released = agent, int(value), False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._handle:#x}, released={self._released})"

    def release(self) -> None:
        """Ends the transfer; returns when no byte of it moves. Calling it again has no effect."""
        if not self._released:
            self._agent.releaseXferReq(self._handle)
            self._released = True

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.release()


class nixl_thread_sync_t(enum.Enum):
    """How threads of the caller may share an agent. Any of them is right here: agents are thread-safe."""

    NIXL_THREAD_SYNC_NONE = _bindings.NIXL_THREAD_SYNC_NONE
    NIXL_THREAD_SYNC_STRICT = _bindings.NIXL_THREAD_SYNC_STRICT
    NIXL_THREAD_SYNC_RW = _bindings.NIXL_THREAD_SYNC_RW
    NIXL_THREAD_SYNC_DEFAULT = _bindings.NIXL_THREAD_SYNC_DEFAULT


class nixl_agent_config:
    """How an agent is set up. TypeError: an unknown name, or a sync_mode of another type."""

    def __init__(
        self,
        enable_prog_thread: bool = True,
        enable_listen_thread: bool = False,
        listen_port: int = DEFAULT_COMM_PORT,
        capture_telemetry: bool = False,
        num_threads: int = 0,
        backends: list[str] | None = None,
        sync_mode: nixl_thread_sync_t | None = None,
    ) -> None:
        if sync_mode is not None and not isinstance(sync_mode, nixl_thread_sync_t):
            raise TypeError(f"sync_mode must be a nixl_thread_sync_t (got {type(sync_mode).__name__!r})")
        self.backends = ["UCX"] if backends is None else backends
        self.enable_pthread = enable_prog_thread
        self.enable_listen = enable_listen_thread
        self.port = listen_port
        self.capture_telemetry = capture_telemetry
        self.num_threads = num_threads
        self.sync_mode = sync_mode


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _rows_of_tensors(tensors: list[Any]) -> tuple[str, np.ndarray] | None:
    """Kind of memory and N x 3 rows; None: not contiguous, or on several devices. The reason is in the log."""
    if len({str(tensor.device) for tensor in tensors}) != 1:
        log.error("nixl: tensors of one list must be on one device")
        return None
    if not all(tensor.is_contiguous() for tensor in tensors):
        log.error("nixl: a list needs contiguous tensors")
        return None
    on_host = tensors[0].device.type == "cpu"
    rows = [(t.data_ptr(), t.numel() * t.element_size(), 0 if on_host else t.get_device()) for t in tensors]
    return ("DRAM" if on_host else "VRAM"), np.array(rows, dtype=np.uint64)


class nixl_agent:
    """An agent by name, with backends by name. Thread-safe."""

    def __init__(
        self, agent_name: str, nixl_conf: nixl_agent_config | None = None, instantiate_all: bool = False
    ) -> None:
        if nixl_conf is not None and instantiate_all:
            log.warning("nixl: instantiate_all has no effect beside a configuration")
            instantiate_all = False
        conf = nixl_conf or nixl_agent_config()
        config = nixlAgentConfig()
        config.useProgThread, config.useListenThread = conf.enable_pthread, conf.enable_listen
        config.listenPort, config.captureTelemetry = conf.port, conf.capture_telemetry
        self.name = agent_name
        self.agent = nixlAgent(agent_name, config)
        self.notifs: dict[str, list[bytes]] = {}
        self.backends: dict[str, int] = {}
        self.backend_mems: dict[str, list[str]] = {}
        self.backend_options: dict[str, dict[str, str]] = {}
        self.plugin_list = self.agent.getAvailPlugins()
        self.nixl_mems = {
            "DRAM": _bindings.DRAM_SEG,
            "VRAM": _bindings.VRAM_SEG,
            "FILE": _bindings.FILE_SEG,
            "BLOCK": _bindings.BLK_SEG,
            "OBJ": _bindings.OBJ_SEG,
            "cpu": _bindings.DRAM_SEG,
            "cuda": _bindings.VRAM_SEG,
            "npu": _bindings.VRAM_SEG,
        }
        self.nixl_ops = {"WRITE": _bindings.NIXL_WRITE, "READ": _bindings.NIXL_READ}
        for name in self.plugin_list if instantiate_all else conf.backends:
            if name not in self.plugin_list:
                log.warning("nixl: backend %s is skipped: there are %s", name, ", ".join(self.plugin_list))
                continue
            first = not self.backends
            self.create_backend(name, {"num_threads": str(conf.num_threads)} if conf.num_threads and first else {})

    # ---- backends ----

    def get_plugin_list(self) -> list[str]:
        """The backends that can be created."""
        return self.plugin_list

    def get_plugin_mem_types(self, backend: str) -> list[str]:
        """The kinds of memory a plugin moves; empty for an unknown one."""
        return self._plugin(backend)[1]

    def get_plugin_params(self, backend: str) -> dict[str, str]:
        """A plugin's options and their defaults; empty for an unknown one."""
        return self._plugin(backend)[0]

    def _plugin(self, backend: str) -> tuple[dict[str, str], list[str]]:
        if backend in self.plugin_list:
            return self.agent.getPluginParams(backend)
        log.warning("nixl: plugin %s is not available", backend)
        return {}, []

    def get_backend_mem_types(self, backend: str) -> list[str]:
        """The kinds of memory a created backend moves; empty for one that was not created."""
        if backend not in self.backend_mems:
            log.warning("nixl: backend %s was not created", backend)
        return self.backend_mems.get(backend, [])

    def get_backend_params(self, backend: str) -> dict[str, str]:
        """A created backend's parameters; empty for one that was not created."""
        if backend not in self.backend_options:
            log.warning("nixl: backend %s was not created", backend)
        return self.backend_options.get(backend, {})

    def create_backend(self, backend: str, initParams: dict[str, str] | None = None) -> None:
        """Creates a backend. nixlNotFoundError: unknown plugin; nixlInvalidParamError: an option, by name."""
        self.backends[backend] = self.agent.createBackend(backend, initParams or {})
        self.backend_options[backend], self.backend_mems[backend] = self.agent.getBackendParams(self.backends[backend])

    def _handles(self, backends: list[str] | None) -> list[int]:
        return [self.backends[name] for name in backends or ()]

    # ---- memory ----

    def register_memory(self, reg_list: Any, mem_type: str | None = None, backends: list[str] | None = None) -> Any:
        """Lets other agents read and write the memory. Returns the list, for deregister_memory()."""
        descs = self.get_reg_descs(reg_list, mem_type)
        self.agent.registerMem(descs, self._handles(backends))
        return descs

    def deregister_memory(self, dereg_list: nixlRegDList, backends: list[str] | None = None) -> None:
        """Returns when no byte of the memory can move."""
        self.agent.deregisterMem(dereg_list, self._handles(backends))

    def query_memory(self, reg_list: Any, backend: str, mem_type: str | None = None) -> list[dict[str, str] | None]:
        """nixlNotSupportedError: it is for files and objects."""
        if backend not in self.backends:
            raise ValueError(f"Backend '{backend}' not found. Available backends: {list(self.backends)}")
        return self.agent.queryMem(self.get_reg_descs(reg_list, mem_type), self.backends[backend])

    def prep_mem_view(self, dlist: Any, *, backends: list[str] | None = None) -> int:
        """nixlNotSupportedError: device code cannot start transfers."""
        return self.agent.prepMemView(dlist, self._handles(backends))

    def release_mem_view(self, mvh: int) -> None:
        """nixlNotFoundError: there are no memory views."""
        self.agent.releaseMemView(mvh)

    # ---- other agents ----

    def get_agent_metadata(self) -> bytes:
        """What another agent needs to reach this one's registered memory. Opaque."""
        return self.agent.getLocalMD()

    def get_partial_agent_metadata(
        self, descs: nixlRegDList, inc_conn_info: bool = False, backends: list[str] | None = None
    ) -> bytes:
        """As get_agent_metadata(), for these registrations only."""
        return self.agent.getLocalPartialMD(descs, inc_conn_info, self._handles(backends))

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """The name of the agent, as bytes (as NIXL returns it). nixlMismatchError: damaged, or not ours."""
        return self.agent.loadRemoteMD(metadata)

    def remove_remote_agent(self, agent: str | bytes) -> None:
        """Ends its transfers and the connection, and forgets it. No-op for an unknown one."""
        self.agent.invalidateRemoteMD(agent)

    def check_remote_metadata(self, agent: str | bytes, descs: nixlXferDList | None = None) -> bool:
        """Whether the agent, and these ranges of its memory, are known."""
        wanted = nixlXferDList(_bindings.DRAM_SEG) if descs is None else descs
        return self.agent.checkRemoteMD(agent, wanted) == _bindings.NIXL_SUCCESS

    def make_connection(self, remote_agent: str | bytes, backends: list[str] | None = None) -> None:
        """Connects now instead of at the first transfer."""
        self.agent.makeConnection(remote_agent, self._handles(backends))

    def send_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """nixlNotSupportedError: metadata travels over the program's own channel."""
        self.agent.sendLocalMD(ip_addr, port)

    def send_partial_agent_metadata(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: list[str] | None = None,
        ip_addr: str = "",
        port: int = DEFAULT_COMM_PORT,
        label: str = "",
    ) -> None:
        """nixlNotSupportedError: metadata travels over the program's own channel."""
        self.agent.sendLocalPartialMD(descs, inc_conn_info, self._handles(backends), ip_addr, port, label)

    def fetch_remote_metadata(
        self, remote_agent: str, ip_addr: str = "", port: int = DEFAULT_COMM_PORT, label: str = ""
    ) -> None:
        """nixlNotSupportedError: metadata travels over the program's own channel."""
        self.agent.fetchRemoteMD(remote_agent, ip_addr, port, label)

    def invalidate_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """nixlNotSupportedError: metadata travels over the program's own channel."""
        self.agent.invalidateLocalMD(ip_addr, port)

    # ---- transfers ----

    def prep_xfer_dlist(
        self, agent_name: str | bytes, xfer_list: Any, mem_type: str | None = None, backends: list[str] | None = None
    ) -> nixl_prepped_dlist_handle:
        """Checks one side once; "" or "NIXL_INIT_AGENT" is the local side. nixlNotFoundError: not registered."""
        name = "" if agent_name in ("", "NIXL_INIT_AGENT", b"NIXL_INIT_AGENT") else agent_name
        handles = self._handles(backends)
        if isinstance(xfer_list, np.ndarray) and xfer_list.ndim == 2 and xfer_list.shape[1] == 5:
            if mem_type is None:
                raise ValueError("strided descriptors need a mem_type")
            number = self.agent.prepXferDlist(name, self.nixl_mems[mem_type], xfer_list, handles)
        else:
            number = self.agent.prepXferDlist(name, self.get_xfer_descs(xfer_list, mem_type), handles)
        return nixl_prepped_dlist_handle(self.agent, number)

    def make_prepped_xfer(
        self,
        operation: str,
        local_xfer_side: nixl_prepped_dlist_handle,
        local_indices: Any,
        remote_xfer_side: nixl_prepped_dlist_handle,
        remote_indices: Any,
        notif_msg: bytes = b"",
        backends: list[str] | None = None,
        skip_desc_merge: bool = False,
    ) -> nixl_xfer_handle:
        """A transfer between descriptors of two prepared lists. nixlInvalidParamError: an index, a length, a list."""
        number = self.agent.makeXferReq(
            self.nixl_ops[operation], local_xfer_side._handle, local_indices, remote_xfer_side._handle,
            remote_indices, notif_msg, self._handles(backends), skip_desc_merge,
        )  # fmt: skip
        return nixl_xfer_handle(self.agent, number)

    def initialize_xfer(
        self,
        operation: str,
        local_descs: nixlXferDList,
        remote_descs: nixlXferDList,
        remote_agent: str | bytes,
        notif_msg: bytes = b"",
        backends: list[str] | None = None,
    ) -> nixl_xfer_handle:
        """A transfer between two lists. nixlNotFoundError: not registered, or an unknown agent."""
        number = self.agent.createXferReq(
            self.nixl_ops[operation], local_descs, remote_descs, remote_agent, notif_msg, self._handles(backends)
        )
        return nixl_xfer_handle(self.agent, number)

    def transfer(self, handle: nixl_xfer_handle, notif_msg: bytes = b"") -> str:
        """Starts it: "DONE" or "PROC". nixlRepostActiveError: it is under way."""
        return self._state(self.agent.postXferReq(handle._handle, notif_msg))

    def check_xfer_state(self, handle: nixl_xfer_handle) -> str:
        """ "DONE" or "PROC"; raises what ended it."""
        return self._state(self.agent.getXferStatus(handle._handle))

    @staticmethod
    def _state(status: int) -> str:
        return {_bindings.NIXL_SUCCESS: "DONE", _bindings.NIXL_IN_PROG: "PROC"}.get(status, "ERR")  # type: ignore[call-overload]

    def get_xfer_telemetry(self, handle: nixl_xfer_handle) -> nixlXferTelemetry:
        """Times in microseconds, bytes and descriptors of a transfer that has ended."""
        return self.agent.getXferTelemetry(handle._handle)

    def query_xfer_backend(self, handle: nixl_xfer_handle) -> str:
        """The name of the backend that carries it."""
        number = self.agent.queryXferBackend(handle._handle)
        return next(name for name, known in self.backends.items() if known == number)

    def estimate_xfer_cost(self, req_handle: nixl_xfer_handle) -> tuple[int, int, str]:
        """(0, 0, "UNKNOWN"): no estimate is made."""
        duration, margin, _ = self.agent.estimateXferCost(req_handle._handle)
        return duration, margin, "UNKNOWN"

    def release_xfer_handle(self, handle: nixl_xfer_handle) -> None:
        """Ends the transfer; returns when no byte of it moves."""
        handle.release()

    def release_dlist_handle(self, handle: nixl_prepped_dlist_handle) -> None:
        """Forgets a prepared list."""
        handle.release()

    # ---- notifications ----

    def get_new_notifs(self, backends: list[str] | None = None) -> dict[str, list[bytes]]:
        """What has come since the last call, by agent, oldest first; each message exactly once."""
        return self.agent.getNotifs({}, self._handles(backends))

    def update_notifs(self, backends: list[str] | None = None) -> dict[str, list[bytes]]:
        """Adds what has come to `notifs` and returns it."""
        self.notifs = self.agent.getNotifs(self.notifs, self._handles(backends))
        return self.notifs

    def check_remote_xfer_done(
        self,
        remote_agent_name: str,
        lookup_tag: bytes,
        backends: list[str] | None = None,
        tag_is_prefix: bool = True,
    ) -> bool:
        """Whether a message with this tag has come from the agent; takes it out of `notifs`."""
        waiting = self.update_notifs(backends).get(remote_agent_name, [])
        for message in waiting:
            if message.startswith(lookup_tag) if tag_is_prefix else lookup_tag in message:
                waiting.remove(message)
                return True
        return False

    def send_notif(self, remote_agent_name: str | bytes, notif_msg: bytes, backend: str | None = None) -> None:
        """Sends a message of its own, after those that were sent before."""
        handles = [] if backend is None else [self.backends[backend]]
        self.agent.genNotif(remote_agent_name, notif_msg, handles)

    # ---- descriptor lists ----

    def get_xfer_descs(self, descs: Any, mem_type: str | None = None) -> Any:
        """A transfer list from tuples (address, bytes, device), an N x 3 array, a tensor, tensors, or such a list.

        None, with the reason in the log, for anything else, as NIXL returns it.
        """
        return self._list_of(descs, mem_type, nixlXferDList, nixlRegDList)

    def get_reg_descs(self, descs: Any, mem_type: str | None = None) -> Any:
        """A registration list, as get_xfer_descs(); its tuples have a fourth element, the metadata."""
        return self._list_of(descs, mem_type, nixlRegDList, nixlXferDList)

    def _list_of(self, descs: Any, mem_type: str | None, wanted: Any, other: Any) -> Any:
        if isinstance(descs, wanted):
            return descs
        if isinstance(descs, other):
            log.error("nixl: a %s is needed here, not a %s", wanted.__name__, other.__name__)
            return None
        if _is_tensor(descs) or (isinstance(descs, (list, tuple)) and len(descs) and _is_tensor(descs[0])):
            found = _rows_of_tensors([descs] if _is_tensor(descs) else list(descs))
            return None if found is None else wanted(self.nixl_mems[found[0]], found[1])
        is_array = isinstance(descs, np.ndarray)
        if not is_array and not isinstance(descs[0], tuple):
            return None
        if mem_type is None:
            log.error("nixl: a mem_type is needed for descriptors that are no tensors")
            return None
        columns = 3 if is_array else wanted.columns
        if (descs.ndim != 2 or descs.shape[1] != 3) if is_array else len(descs[0]) != columns:
            log.error("nixl: a %s needs %d columns", wanted.__name__, columns)
            return None
        return wanted(self.nixl_mems[mem_type], descs)

    def get_remote_descs(self, descs: Any, mem_type: str | None = None) -> Any:
        """A list of (address, bytes, device, agent); only memory views use it."""
        if isinstance(descs, nixlRemoteDList):
            return descs
        if not isinstance(descs[0], tuple) or mem_type is None or len(descs[0]) != 4:
            log.error("nixl: a remote list needs tuples (address, bytes, device, agent) and a mem_type")
            return None
        return nixlRemoteDList(self.nixl_mems[mem_type], descs)

    def get_serialized_descs(self, descs: Any) -> bytes:
        """The list as bytes."""
        return pickle.dumps(descs)

    def deserialize_descs(self, serialized_descs: bytes) -> Any:
        """A list from get_serialized_descs(). nixlMismatchError: any other bytes; nothing in them is run."""
        return _unpickled_list(serialized_descs)


class _ListUnpickler(pickle.Unpickler):
    """Bytes from another process may name only the list classes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} is no descriptor list")


def _unpickled_list(data: bytes) -> Any:
    try:
        return _ListUnpickler(io.BytesIO(data)).load()
    except nixlMismatchError:
        raise
    except Exception as error:  # whatever the bytes make of the unpickler
        raise refusal(nixlMismatchError, f"not a serialized list: {error}") from None


_ALLOWED: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__name__): kind for kind in (nixlXferDList, nixlRegDList, nixlRemoteDList, nixl_mem_t)},
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("builtins", "object"): object,
}
