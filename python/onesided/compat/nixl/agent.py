"""nixlAgent: the calls of NIXL's core, over one engine."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onesided.compat.nixl import codes, metadata
from onesided.compat.nixl.codes import nixl_mem_t, nixl_status_t, nixl_xfer_op_t, refusal
from onesided.compat.nixl.lists import nixlRegDList, nixlXferDList
from onesided.compat.nixl.memory import LocalMemory, RemoteMemory, check_held, known_kind
from onesided.compat.nixl.outbox import Notice, Outbox
from onesided.compat.nixl.transfers import PreparedSide, XferRequest, check_pairs, chosen, nixlXferTelemetry, pair_up
from onesided.compat.opening import default_host, open_engine
from onesided.engine import Engine, EngineError, PreparedList

NIXL_INIT_AGENT = ""
DEFAULT_COMM_PORT = 8888
# The plugin names that programs ask for, and the options of each that have a meaning here.
PLUGINS = ("ONESIDED", "UCX")
_OPTIONS = {"num_threads": "0", "num_workers": "1", "ucx_devices": "", "ucx_error_handling_mode": "peer"}
_MEMORY = ["DRAM_SEG", "VRAM_SEG"]
_FLUSH_S = 2.0


class nixlAgentConfig:
    """How an agent is set up. A value."""

    def __init__(self, *arguments: Any) -> None:
        defaults: list[Any] = [False, False, 0, codes.nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE, 0, 0, False, 0]
        if len(arguments) > len(defaults):
            raise TypeError(f"nixlAgentConfig takes at most {len(defaults)} arguments, got {len(arguments)}")
        values = [*arguments, *defaults[len(arguments) :]]
        self.useProgThread, self.useListenThread, self.listenPort, self.syncMode = values[:4]
        self.pthrDelay, self.lthrDelay, self.captureTelemetry, self.etcdWatchTimeout = values[4:]


@dataclass
class _Remote:
    """Another agent, as its metadata told."""

    engine_id: str
    memory: dict[int, list[RemoteMemory]] = field(default_factory=dict)
    outbox: Outbox | None = None


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _end(engine: list[Engine], remotes: dict[str, _Remote]) -> None:
    for remote in remotes.values():
        if remote.outbox is not None:
            remote.outbox.close(_FLUSH_S)
    for opened in engine:
        opened.close()


class nixlAgent:
    """One agent. Thread-safe: its own lock guards its tables, and bytes move outside it."""

    def __init__(self, name: str, config: nixlAgentConfig) -> None:
        if config.useListenThread:
            raise refusal(
                codes.nixlNotSupportedError,
                "enable_listen_thread: metadata travels over the program's own channel only, not over a listener",
            )
        self._name = _text(name)
        self._telemetry = bool(config.captureTelemetry)
        self._lock = threading.RLock()
        self._engines: list[Engine] = []  # one, once a backend was made
        self._backends: dict[int, str] = {}
        self._memory: LocalMemory | None = None
        self._remotes: dict[str, _Remote] = {}
        self._sides: dict[int, PreparedSide] = {}
        self._requests: dict[int, XferRequest] = {}
        self._messages: dict[int, bytes] = {}  # notifications, by request
        self._numbers = itertools.count(0x1000, 16)
        self._own_notifs: list[bytes] = []
        self._closing = weakref.finalize(self, _end, self._engines, self._remotes)

    # ---- plugins and backends ----

    def getAvailPlugins(self) -> list[str]:
        return list(PLUGINS)

    def getPluginParams(self, plugin: str) -> tuple[dict[str, str], list[str]]:
        if plugin not in PLUGINS:
            raise refusal(codes.nixlNotFoundError, f"plugin {plugin!r}: there are {', '.join(PLUGINS)}")
        return dict(_OPTIONS), list(_MEMORY)

    def createBackend(self, plugin: str, options: dict[str, str]) -> int:
        self.getPluginParams(plugin)
        engine_options: dict[str, str] = {}
        for name, value in options.items():
            if name in ("num_threads", "num_workers"):
                if not value.isdigit():
                    raise refusal(codes.nixlInvalidParamError, f"{plugin} option {name}={value!r}: expected a number")
                if int(value) > 0:
                    engine_options["worker_threads"] = value
            elif _OPTIONS.get(name) != value:
                what = f"only {_OPTIONS[name]!r} is supported" if name in _OPTIONS else "unknown option"
                raise refusal(codes.nixlInvalidParamError, f"{plugin} option {name}={value!r}: {what}")
        with self._lock:
            if plugin in self._backends.values():
                raise refusal(codes.nixlInvalidParamError, f"the agent has a backend {plugin} already")
            if not self._engines:
                try:
                    self._engines.append(open_engine(f"{default_host()}:0", engine_options))
                except EngineError as error:
                    raise codes.of_engine(error, f"createBackend({plugin})") from None
                self._memory = LocalMemory(self._engines[0])
            elif engine_options:
                raise refusal(codes.nixlNotAllowedError, f"{plugin}: the engine runs already; its threads are fixed")
            number = next(self._numbers)
            self._backends[number] = plugin
        return number

    def getBackendParams(self, backend: int) -> tuple[dict[str, str], list[str]]:
        self._check_backends([backend])
        return {}, list(_MEMORY)

    # ---- memory ----

    def registerMem(self, descs: nixlRegDList, backends: Sequence[int] = ()) -> nixl_status_t:
        self._need(descs, nixlRegDList, "registerMem")
        self._check_backends(backends)
        self._local().add(descs)
        return nixl_status_t.NIXL_SUCCESS

    def deregisterMem(self, descs: nixlRegDList, backends: Sequence[int] = ()) -> nixl_status_t:
        self._need(descs, nixlRegDList, "deregisterMem")
        self._check_backends(backends)
        self._local().remove(descs)
        return nixl_status_t.NIXL_SUCCESS

    def queryMem(self, descs: nixlRegDList, backend: int) -> list[dict[str, str] | None]:
        raise refusal(codes.nixlNotSupportedError, "queryMem: only file and object memory can be asked about")

    def prepMemView(self, dlist: Any, backends: Sequence[int] = ()) -> int:
        raise refusal(codes.nixlNotSupportedError, "prepMemView: device code cannot start transfers here")

    def releaseMemView(self, mvh: int) -> None:
        raise refusal(codes.nixlNotFoundError, f"releaseMemView: there is no memory view {mvh}")

    # ---- metadata and connections ----

    def getLocalMD(self) -> bytes:
        return metadata.AgentMetadata(self._name, self._engine().id, self._local().describe()).encode()

    def getLocalPartialMD(
        self, descs: nixlRegDList, inc_conn_info: bool = False, backends: Sequence[int] = ()
    ) -> bytes:
        self._check_backends(backends)
        engine_id = self._engine().id if inc_conn_info else ""
        return metadata.AgentMetadata(self._name, engine_id, self._local().describe(descs)).encode()

    def loadRemoteMD(self, blob: bytes) -> bytes:
        told = metadata.decode(blob)
        if told.agent == self._name:
            raise refusal(codes.nixlInvalidParamError, f"the metadata is of this agent itself, {self._name!r}")
        engine = self._engine()
        memory = [(kind, RemoteMemory.decode(engine, described)) for kind, described in told.described]
        with self._lock:
            known = self._remotes.get(told.agent)
            engine_id = told.engine_id or (known.engine_id if known else "")
            if not engine_id:
                raise refusal(codes.nixlNotFoundError, f"agent {told.agent!r} is unknown: connection information first")
            if known is not None and known.engine_id != engine_id:
                raise refusal(
                    codes.nixlNotAllowedError,
                    f"agent {told.agent!r} is loaded as {known.engine_id}, the metadata is of {engine_id}; "
                    "remove the agent first",
                )
            if any(entry.regions.engine_id != engine_id for _, entry in memory):
                raise refusal(codes.nixlMismatchError, f"the memory of {told.agent!r} is described by another engine")
            remote = known or self._remotes.setdefault(told.agent, _Remote(engine_id))
            if told.engine_id:
                remote.memory.clear()  # full metadata replaces what was known; partial adds to it
            for kind, entry in memory:
                remote.memory.setdefault(kind, []).insert(0, entry)
        return told.agent.encode()

    def invalidateRemoteMD(self, agent: str | bytes) -> nixl_status_t:
        with self._lock:
            remote = self._remotes.pop(_text(agent), None)
        if remote is not None:
            if remote.outbox is not None:
                remote.outbox.close(_FLUSH_S)
            with contextlib.suppress(EngineError):  # it may never have been connected
                self._engine().disconnect(remote.engine_id)
        return nixl_status_t.NIXL_SUCCESS

    def checkRemoteMD(self, agent: str | bytes, descs: nixlXferDList) -> nixl_status_t:
        with self._lock:
            remote = self._remotes.get(_text(agent))
        if remote is None:
            return nixl_status_t.NIXL_ERR_NOT_FOUND
        rows = descs.rows()
        if len(rows) == 0 or any(
            entry.coverage.holds(rows[:, 0], rows[:, 1]).all() for entry in remote.memory.get(descs.getType(), [])
        ):
            return nixl_status_t.NIXL_SUCCESS
        return nixl_status_t.NIXL_ERR_NOT_FOUND

    def makeConnection(self, agent: str | bytes, backends: Sequence[int] = ()) -> nixl_status_t:
        self._check_backends(backends)
        remote = self._remote(agent)
        try:
            self._engine().connect(remote.engine_id)
        except EngineError as error:
            if error.status != codes.Status.ALREADY_CONNECTED:
                raise codes.of_engine(error, f"makeConnection({_text(agent)!r})") from None
        return nixl_status_t.NIXL_SUCCESS

    def _no_channel(self, call: str) -> Exception:
        return refusal(
            codes.nixlNotSupportedError,
            f"{call}: agents exchange metadata over the program's own channel (get_agent_metadata, add_remote_agent)",
        )

    def sendLocalMD(self, ip_addr: str = "", port: int = 0) -> None:
        raise self._no_channel("sendLocalMD")

    def sendLocalPartialMD(
        self,
        descs: nixlRegDList,
        inc_conn_info: bool = False,
        backends: Sequence[int] = (),
        ip_addr: str = "",
        port: int = 0,
        label: str = "",
    ) -> None:
        raise self._no_channel("sendLocalPartialMD")

    def fetchRemoteMD(self, remote_agent: str, ip_addr: str = "", port: int = 0, label: str = "") -> None:
        raise self._no_channel("fetchRemoteMD")

    def invalidateLocalMD(self, ip_addr: str = "", port: int = 0) -> None:
        raise self._no_channel("invalidateLocalMD")

    # ---- transfers ----

    def prepXferDlist(self, *arguments: Any, **named: Any) -> int:
        """(agent, list), (agent, kind, N x 3 or N x 5 array) or (list): a prepared side, by number."""
        agent, descs = self._prepared_arguments(list(arguments), named)
        rows = descs.rows()
        kind = descs.getType()
        known_kind(kind)
        told: RemoteMemory | None = None
        if agent is None:
            coverage = self._local().coverage(kind)
            check_held(coverage, rows, "local")
        else:
            told = self._memory_of(agent, kind, rows)
            coverage = told.coverage
        bound: PreparedList | None = None
        if len(rows) and rows[:, 1].all() and not coverage.cuts(rows[:, 0], rows[:, 1]):
            engine, ranges = self._engine(), np.ascontiguousarray(rows[:, :2])
            try:
                bound = engine.prepare_remote(told.regions, ranges) if told else engine.prepare_local(ranges)
            except EngineError as error:
                raise codes.of_engine(error, "prepXferDlist") from None
        with self._lock:
            number = next(self._numbers)
            self._sides[number] = PreparedSide(agent, kind, rows.copy(), bound)
        return number

    def releasedDlistH(self, handle: int) -> nixl_status_t:
        with self._lock:
            if self._sides.pop(handle, None) is None:
                raise refusal(codes.nixlInvalidParamError, f"there is no prepared list {handle:#x}")
        return nixl_status_t.NIXL_SUCCESS

    def makeXferReq(
        self,
        operation: nixl_xfer_op_t,
        local_side: int,
        local_indices: Any,
        remote_side: int,
        remote_indices: Any,
        notif_msg: str | bytes = b"",
        backend: Sequence[int] = (),
        skip_desc_merge: bool = False,
    ) -> int:
        self._check_backends(backend)
        local, remote = self._side(local_side, "local"), self._side(remote_side, "remote")
        if local.agent is not None or remote.agent is None:
            raise refusal(codes.nixlInvalidParamError, "the first list must be local, the second of a remote agent")
        here = chosen(local_indices, len(local.rows), "local")
        there = chosen(remote_indices, len(remote.rows), "remote")
        if local.bound is not None and remote.bound is not None:
            sizes = local.rows[here, 1]
            check_pairs(sizes, remote.rows[there, 1])
            items = (local.bound, here, remote.bound, there)
            peer = self._remote(remote.agent).engine_id
            return self._add_request(
                XferRequest(operation, remote.agent, peer, items, int(sizes.sum()), len(sizes)), notif_msg
            )
        ours, theirs = local.rows[here], remote.rows[there]
        return self._make(operation, local.kind, ours, remote.agent, remote.kind, theirs, notif_msg)

    def createXferReq(
        self,
        operation: nixl_xfer_op_t,
        local_descs: nixlXferDList,
        remote_descs: nixlXferDList,
        remote_agent: str | bytes,
        notif_msg: str | bytes = b"",
        backend: Sequence[int] = (),
    ) -> int:
        self._need(local_descs, nixlXferDList, "createXferReq")
        self._need(remote_descs, nixlXferDList, "createXferReq")
        self._check_backends(backend)
        self._remote(remote_agent)
        if local_descs.isEmpty():
            raise refusal(codes.nixlNotFoundError, "the list of descriptors is empty")
        return self._make(
            operation, local_descs.getType(), local_descs.rows(),
            _text(remote_agent), remote_descs.getType(), remote_descs.rows(), notif_msg,
        )  # fmt: skip

    def postXferReq(self, reqh: int, notif_msg: str | bytes = b"") -> nixl_status_t:
        request, peer, message = self._request(reqh)
        if notif_msg:
            message = notif_msg.encode() if isinstance(notif_msg, str) else bytes(notif_msg)
            self._set_message(reqh, message)
        return request.post(self._engine(), self._outbox(peer), self._name, message)

    def getXferStatus(self, reqh: int) -> nixl_status_t:
        return self._request(reqh)[0].status()

    def getXferTelemetry(self, reqh: int) -> nixlXferTelemetry:
        return self._request(reqh)[0].telemetry(self._telemetry)

    def queryXferBackend(self, reqh: int) -> int:
        self._request(reqh)
        return next(iter(self._backends))

    def estimateXferCost(self, req_handle: int) -> tuple[int, int, int]:
        """No estimate, as NIXL answers for its UCX backend: the method is none of nixl_cost_t."""
        self._request(req_handle)
        return 0, 0, 1

    def releaseXferReq(self, reqh: int) -> nixl_status_t:
        request = self._request(reqh)[0]
        request.release()
        with self._lock:
            del self._requests[reqh]
            self._messages.pop(reqh, None)
        return nixl_status_t.NIXL_SUCCESS

    # ---- notifications ----

    def genNotif(self, remote_agent: str | bytes, msg: str | bytes, backends: Any = ()) -> nixl_status_t:
        message = msg.encode() if isinstance(msg, str) else bytes(msg)
        limit = self._engine().get_capability("MAX_NOTIFY_BYTES") - len(self._name.encode())
        if len(message) > limit:
            raise refusal(codes.nixlInvalidParamError, f"a notification of {len(message)} bytes: at most {limit}")
        if _text(remote_agent) == self._name:
            with self._lock:
                self._own_notifs.append(message)
            return nixl_status_t.NIXL_SUCCESS
        self._remote(remote_agent)
        self._outbox(_text(remote_agent)).put(Notice(self._name, message))
        return nixl_status_t.NIXL_SUCCESS

    def getNotifs(self, notif_map: dict[str, list[bytes]], backends: Sequence[int] = ()) -> dict[str, list[bytes]]:
        self._check_backends(backends)
        with self._lock:
            own, self._own_notifs = self._own_notifs, []
        for message in own:
            notif_map.setdefault(self._name, []).append(message)
        for name, message in self._engine().get_notifies():
            notif_map.setdefault(name, []).append(message)
        return notif_map

    # ---- inside ----

    def _set_message(self, reqh: int, message: bytes) -> None:
        with self._lock:
            self._messages[reqh] = message

    @staticmethod
    def _need(value: Any, wanted: type, call: str) -> None:
        if not isinstance(value, wanted):
            raise TypeError(f"{call}(): incompatible function arguments: expected {wanted.__name__}, got {value!r}")

    def _engine(self) -> Engine:
        if not self._engines:
            raise refusal(codes.nixlNotFoundError, "the agent has no backend: create_backend() first")
        return self._engines[0]

    def _local(self) -> LocalMemory:
        self._engine()
        assert self._memory is not None
        return self._memory

    def _check_backends(self, backends: Sequence[int]) -> None:
        for backend in backends:
            if backend not in self._backends:
                raise refusal(codes.nixlNotFoundError, f"there is no backend with the handle {backend}")

    def _remote(self, agent: str | bytes) -> _Remote:
        with self._lock:
            remote = self._remotes.get(_text(agent))
            if remote is None and _text(agent) == self._name:
                engine = self._engine()
                memory = {kind: [RemoteMemory.decode(engine, blob)] for kind, blob in self._local().describe()}
                return _Remote(engine.id, memory)  # read anew each time: registrations change
        if remote is None:
            raise refusal(codes.nixlNotFoundError, f"agent {_text(agent)!r} is unknown: add_remote_agent() first")
        return remote

    def _outbox(self, agent: str) -> Outbox:
        with self._lock:
            remote = self._remote(agent)
            if remote.outbox is None:
                remote.outbox = Outbox(self._engine(), remote.engine_id)
            return remote.outbox

    def _memory_of(self, agent: str, kind: nixl_mem_t, rows: np.ndarray) -> RemoteMemory:
        """The newest of what the agent told that holds all rows. nixlNotFoundError: none does."""
        told = self._remote(agent).memory.get(kind, [])
        moving = rows[rows[:, 1] > 0]
        for entry in told:
            if entry.coverage.holds(moving[:, 0], moving[:, 1]).all():
                return entry
        if not told:
            raise refusal(codes.nixlNotFoundError, f"agent {agent!r} has told of no {kind.name} memory")
        check_held(told[0].coverage, rows, f"agent {agent!r}: remote")
        raise refusal(codes.nixlNotFoundError, f"agent {agent!r}: a remote range is not registered")

    def _prepared_arguments(self, arguments: list[Any], named: dict[str, Any]) -> tuple[str | None, nixlXferDList]:
        agent: str | None = None
        if "agent_name" in named:
            agent = _text(named["agent_name"])
        elif arguments and isinstance(arguments[0], (str, bytes)):
            agent = _text(arguments.pop(0))
        kind = arguments.pop(0) if arguments and isinstance(arguments[0], nixl_mem_t) else named.get("type")
        descs: Any = arguments.pop(0) if arguments else named.get("descs")
        self._check_backends(arguments.pop(0) if arguments else named.get("backend", ()))
        if isinstance(descs, np.ndarray) and kind is not None:
            descs = nixlXferDList(kind, _unroll(descs) if descs.ndim == 2 and descs.shape[1] == 5 else descs)
        self._need(descs, nixlXferDList, "prepXferDlist")
        return agent or None, descs

    def _side(self, number: int, what: str) -> PreparedSide:
        with self._lock:
            side = self._sides.get(number)
        if side is None:
            raise refusal(codes.nixlInvalidParamError, f"{what} list {number:#x} was released, or never prepared")
        return side

    def _request(self, number: int) -> tuple[XferRequest, str, bytes]:
        with self._lock:
            request = self._requests.get(number)
            if request is None:
                raise refusal(codes.nixlInvalidParamError, f"transfer {number:#x} was released, or never made")
            return request, request.agent, self._messages.get(number, b"")

    def _make(
        self,
        operation: nixl_xfer_op_t,
        kind: nixl_mem_t,
        ours: np.ndarray,
        agent: str,
        remote_kind: nixl_mem_t,
        theirs: np.ndarray,
        notif_msg: str | bytes,
    ) -> int:
        rows = pair_up(ours, theirs)
        covering = self._local().coverage(kind)
        check_held(covering, ours, "local")
        remote = self._memory_of(agent, remote_kind, theirs)
        cuts = covering.cuts(ours[:, 0], ours[:, 1]) + remote.coverage.cuts(theirs[:, 0], theirs[:, 1])
        try:
            items = XferRequest.bind(remote, rows, cuts)
        except EngineError as error:
            raise codes.of_engine(error, "makeXferReq") from None
        request = XferRequest(operation, agent, self._remote(agent).engine_id, items, int(rows[:, 2].sum()), len(rows))
        return self._add_request(request, notif_msg)

    def _add_request(self, request: XferRequest, notif_msg: str | bytes) -> int:
        with self._lock:
            number = next(self._numbers)
            self._requests[number] = request
        if notif_msg:
            self._set_message(number, notif_msg.encode() if isinstance(notif_msg, str) else bytes(notif_msg))
        return number


def _unroll(rows: np.ndarray) -> np.ndarray:
    """N x 5 (address, bytes, device number, count, stride) as one row for each repetition."""
    counts = rows[:, 3].astype(np.int64)
    starts = np.repeat(rows[:, 0], counts)
    steps = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    addresses = starts + steps.astype(np.uint64) * np.repeat(rows[:, 4], counts).astype(np.uint64)
    return np.stack([addresses, np.repeat(rows[:, 1], counts), np.repeat(rows[:, 2], counts)], axis=1)
