"""The process's one engine for all its objects. It is started by the first object and ended with Ray's connection, so a
driver that only coordinates, or that has shut Ray down, has neither a port nor a thread."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Sequence

import ray
import torch
from ray._private import ray_constants
from ray.experimental import internal_kv

from onesided import _core
from onesided.engine import Engine
from onesided.ray import secret
from onesided.ray.memories import Memories, Span, pooled_span
from onesided.ray.metadata import HixlTransportMetadata
from onesided.ray.npu_memory import NpuMemory
from onesided.ray.options import Options, naming_the_variable


class Process:
    """Engine, exchange and memories of this process. Thread-safe. Made by current()."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.pid = os.getpid()
        self.in_cluster = internal_kv._internal_kv_initialized()
        self.engine = _start_engine(options)
        self.engine_id: str = self.engine.id
        self.exchange = _core.Exchange(
            self.engine, max_peers=options.remote_engines, keep_idle=options.keep_registrations
        )
        self.memories = Memories(self.exchange.memory_gone)
        self.npu = NpuMemory(self.engine, self.memories)
        self.receive_pool = (
            _core.ReceivePool(self.exchange, options.receive_pool_bytes) if options.receive_pool else None
        )
        # Dense copies of tensors that were not dense, by object; readers read the copies.
        self.packed: dict[str, list[torch.Tensor]] = {}

    def spans(self, tensors: Sequence[torch.Tensor]) -> list[Span]:
        """The addresses of dense tensors and the memories that contain them."""
        host, npu = self.memories.host_span, self.npu.span
        return [host(tensor) if tensor.device.type == "cpu" else npu(tensor) for tensor in tensors]

    def receive_spans(self, tensors: Sequence[torch.Tensor]) -> list[Span]:
        """The same for tensors that were allocated as receive buffers."""
        if self.receive_pool is None:
            return self.spans(tensors)
        npu = self.npu.span
        return [pooled_span(tensor) if tensor.device.type == "cpu" else npu(tensor) for tensor in tensors]

    def fetch(
        self,
        object_id: str,
        metadata: HixlTransportMetadata,
        targets: Sequence[Span],
        connect_timeout_ms: int | None = None,
    ) -> _core.Fetch:
        """Starts to read an object into dense buffers; blocks until connected, at most for the connect timeout. Raises
        EngineError."""
        return self.exchange.fetch(
            object_id,
            metadata.engine_id,
            metadata.meta_version,
            metadata.serialized_mem_descs,
            targets,
            self.connect_timeout_ms if connect_timeout_ms is None else connect_timeout_ms,
            self.transfer_timeout_ms,
        )

    @property
    def connect_timeout_ms(self) -> int:
        return round(self.options.connect_timeout_s * 1000)

    @property
    def transfer_timeout_ms(self) -> int:
        seconds = self.options.transfer_timeout_s
        return round(1000 * (ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS if seconds is None else seconds))

    def close(self) -> None:
        """Ends the engine with its listener, threads and connections, even if readers or received tensors still exist.
        Unfinished transfers fail. Received tensors remain valid. Idempotent."""
        self.npu.close()
        self.engine.close()


_lock = threading.Lock()
_current: Process | None = None


def current() -> Process:
    """The process's engine and its tables, started on first use. Raises the error of the start (a later call tries
    again)."""
    global _current
    process = _current
    if process is not None and process.pid == os.getpid():
        if not process.in_cluster and internal_kv._internal_kv_initialized():
            raise RuntimeError(
                f"a pool, publisher or object was made before ray.init(), so this process listens on {process.engine_id}, which other nodes cannot reach, and has no secret of the cluster; make them after ray.init()"
            )
        return process
    with _lock:
        # After a fork the child starts its own; the parent's engine is the parent's.
        if _current is None or _current.pid != os.getpid():
            _current = Process(Options.from_environment())
        return _current


def peek() -> Process | None:
    """The same, but None if nothing has been started."""
    process = _current
    return process if process is not None and process.pid == os.getpid() else None


def close() -> None:
    """Ends the engine, if there is one. A later current() starts a new one. Idempotent."""
    global _current
    with _lock:
        process, _current = peek(), None
    if process is not None:
        process.close()


# Runs before Ray's own hook, which was added when ray was imported, because a program may end without ray.shutdown().
atexit.register(close)


def _start_engine(options: Options) -> Engine:
    """Listens on this node's address in Ray. With Ray, peers on other nodes may connect with the cluster's secret;
    without Ray, only peers on this host."""
    settings = {} if options.transports is None else {"transports": options.transports}
    with contextlib.ExitStack() as while_it_reads, naming_the_variable(options):
        if not internal_kv._internal_kv_initialized():
            return Engine(options.host or "127.0.0.1", settings)
        host = options.host or ray.util.get_node_ip_address()
        file = while_it_reads.enter_context(secret.SecretFile(secret.cluster_secret()))
        return Engine(host, settings | {"auth_secret_file": file.path})
