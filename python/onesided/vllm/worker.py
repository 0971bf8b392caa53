"""The worker's half of the connector: the registered cache, loads in the background, the promises of finished prefills.

Loads run on threads of their own, so that a slow or dead peer holds up its own requests and nothing else. Needs no
vLLM to import.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from onesided.engine import Engine, EngineError
from onesided.host_memory import host_pool
from onesided.vllm.layout import CacheLayout, Layer, Shard, layer_of, readers_of, sources_of
from onesided.vllm.ledger import Ledger, encode_card
from onesided.vllm.messages import NONCE_BYTES, RELEASE, Load, StepMetadata, WorkerCard, parse_release, release_message
from onesided.vllm.options import ConnectorOptions, UnsupportedError
from onesided.vllm.pull import LoadCancelledError, LoadFailedError, Pull, RemoteCache, RemoteCaches, read_slot

logger = logging.getLogger("onesided.vllm")


class ActiveLoad:
    """A load under way, as the model's thread sees it. Thread-safe."""

    def __init__(self, load: Load, num_layers: int) -> None:
        self.load = load
        self._changed = threading.Condition()
        self._layers_done = 0
        self._num_layers = num_layers
        self._ended = False
        self._cancelled = False
        self._pulls: list[Pull] = []
        self.cause = ""  # set before `ended`; empty: all went well

    def add(self, pull: Pull) -> None:
        """What cancel() has to end. LoadCancelledError: too late."""
        with self._changed:
            if self._cancelled:
                raise LoadCancelledError
            self._pulls.append(pull)

    def cancel(self) -> None:
        """Ends the load soon; it still reports its end."""
        with self._changed:
            self._cancelled = True
            pulls = list(self._pulls)
        for pull in pulls:
            pull.cancel()

    @property
    def cancelled(self) -> bool:
        with self._changed:
            return self._cancelled

    def layer_done(self) -> None:
        with self._changed:
            self._layers_done += 1
            self._changed.notify_all()

    def end(self, cause: str) -> None:
        with self._changed:
            self.cause = cause
            self._ended = True
            self._changed.notify_all()

    @property
    def ended(self) -> bool:
        with self._changed:
            return self._ended

    def wait_layer(self, layer: int) -> None:
        """Blocks until that layer is loaded, or the load has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._layers_done > layer)

    def wait(self) -> None:
        """Blocks until the load has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended)


class KvWorker:
    """One worker. Its methods belong to the model's thread; loads run on threads of the worker's own."""

    def __init__(
        self, options: ConnectorOptions, *, address: str, shard: Shard, num_blocks: int, block_size: int, name: str
    ) -> None:
        self._options = options
        self._shard = shard
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._name = name
        self._engine = Engine(f"{address}:0", options.engine_options())
        self._layout: CacheLayout | None = None
        self._layer_index: dict[str, int] = {}
        self._handles: list[Any] = []
        self._ledger = Ledger(self._engine, options.slots)
        self._card_memory: Any = None
        self._caches: RemoteCaches | None = None
        self._threads = ThreadPoolExecutor(options.load_threads, thread_name_prefix="onesided-kv")
        self._cells = host_pool(options.load_threads * NONCE_BYTES)
        self._cell_handle = self._engine.register_mem(self._cells.addr, options.load_threads * NONCE_BYTES)
        self._free_cells: queue.SimpleQueue[int] = queue.SimpleQueue()
        for at in range(options.load_threads):
            self._free_cells.put(at * NONCE_BYTES)
        self._active: dict[str, ActiveLoad] = {}
        self._bad_blocks: set[int] = set()
        self._failed: set[str] = set()
        self._causes: list[str] = []
        self.ignored_notifications = 0

    # -- set up -------------------------------------------------------------------------------------------------------

    def register(self, kv_caches: Mapping[str, Any]) -> None:
        """Registers the caches. UnsupportedError: a layer whose layout or device cannot be served, by name."""
        if self._layout is not None:
            raise UnsupportedError("register_kv_caches was called twice; the cache of a worker is registered once.")
        layers = [layer_of(name, tensor, self._num_blocks) for name, tensor in kv_caches.items()]
        for name, tensor in kv_caches.items():
            if tensor.device.type not in ("cpu", "npu"):
                raise UnsupportedError(
                    f"layer {name}: its cache is on {tensor.device}; onesided.vllm moves cpu and npu memory. "
                    "Choose another connector for this device."
                )
        self._layout = CacheLayout(tuple(layers), self._num_blocks, self._block_size, self._with_heads(layers))
        self._layer_index = {layer.name: index for index, layer in enumerate(layers)}
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in kv_caches.values()}
        for address, tensor in storages.items():
            kind = "device" if tensor.device.type == "npu" else "host"
            self._handles.append(self._engine.register_mem(address, tensor.untyped_storage().nbytes(), kind))
        self._caches = RemoteCaches(self._engine, self._layout, self._options)

    def _with_heads(self, layers: list[Layer]) -> Shard:
        """Finds the dimension of a block that counts heads: the last but one, where vLLM has it, or the only one."""
        if self._shard.head_dim_index < 0:
            return self._shard
        wanted, shape = len(self._shard.heads()), layers[0].shape
        if len(shape) >= 2 and shape[-2] == wanted:
            found = len(shape) - 2
        else:
            places = [at for at, size in enumerate(shape) if size == wanted]
            if len(places) != 1:
                raise UnsupportedError(f"layer {layers[0].name}: no dimension of {shape} counts its {wanted} KV heads.")
            found = places[0]
        return Shard(self._shard.tp_rank, self._shard.tp_size, self._shard.total_heads, found)

    def card(self) -> WorkerCard:
        """Where peers find this worker's layout and rows."""
        if self._layout is None:
            raise UnsupportedError("the handshake was asked for before register_kv_caches.")
        rows = [
            (row.address, (self._num_blocks - 1) * row.stride + row.nbytes)
            for layer in self._layout.layers
            for row in layer.rows
        ]
        described = self._engine.describe([*rows, (self._ledger.address, self._ledger.nbytes)])
        content = encode_card(self._layout.to_dict(), described)
        if self._card_memory is None:
            self._card_memory = host_pool(len(content))
            self._card_memory.numpy()[: len(content)] = np.frombuffer(content, np.uint8)
            self._handles.append(self._engine.register_mem(self._card_memory.addr, len(content)))
        return WorkerCard(
            self._engine.id, self._engine.describe([(self._card_memory.addr, len(content))]), len(content)
        )

    # -- every step ---------------------------------------------------------------------------------------------------

    def begin_step(self, step: StepMetadata) -> None:
        """Takes the scheduler's orders; loads start and go on in the background."""
        for request_id in step.withdrawn:
            self._ledger.withdraw(request_id)
        for request_id, promise in step.promises.items():
            self._ledger.promise(request_id, promise)
        for request_id, lease_s in step.offered.items():
            self._ledger.offer(request_id, lease_s)
        for cause in step.causes:
            logger.error("%s: %s", self._name, cause)
        for load in step.loads:
            self._start(load)
        for request_id in step.cancelled:
            active = self._active.get(request_id)
            if active is not None:
                active.cancel()

    def _start(self, load: Load) -> None:
        assert self._layout is not None, "vLLM registers the caches before the first step"
        active = ActiveLoad(load, len(self._layout.layers))
        if load.waits or load.local:
            self._active[load.request_id] = active
        self._threads.submit(self._run, active)

    def wait_layer(self, layer_name: str) -> None:
        """Blocks until the loads of this step have that layer. Loads between steps are not waited for."""
        index = self._layer_index.get(layer_name)
        if index is None:
            return
        for active in self._active.values():
            if not active.load.waits:
                active.wait_layer(index)

    def end_step(self) -> tuple[set[str], set[str]]:
        """(requests whose blocks prefill may free, requests that decode has received, the failed ones too)."""
        received: set[str] = set()
        for request_id, active in list(self._active.items()):
            if not active.load.waits:
                active.wait()
            if not active.ended:
                continue
            del self._active[request_id]
            if active.load.waits:
                received.add(request_id)
            if active.cause and not active.cancelled:
                self._bad_blocks.update(active.load.local)
                self._failed.add(request_id)
                self._causes.append(f"{self._name}: request {request_id} was not loaded: {active.cause}")
        for name, message in self._engine.get_notifies():
            release = parse_release(message) if name == RELEASE else None
            if release is None:
                self.ignored_notifications += 1
                logger.warning("%s: ignored a notification %r of %d bytes", self._name, name, len(message))
            else:
                self._ledger.report(*release)
        read, expired = self._ledger.take_ended()
        for request_id in expired:
            logger.warning("%s: no reader came for request %s within its lease; its blocks are freed",
                           self._name, request_id)  # fmt: skip
        return read | expired, received

    def take_bad_blocks(self) -> set[int]:
        """Blocks of loads that failed, once."""
        taken, self._bad_blocks = self._bad_blocks, set()
        return taken

    def take_failed(self) -> set[str]:
        """Requests whose load failed, once."""
        taken, self._failed = self._failed, set()
        return taken

    def take_causes(self) -> list[str]:
        """Why, once: for the scheduler, which tells every rank."""
        taken, self._causes = self._causes, []
        return taken

    def counts(self) -> dict[str, int]:
        """What is under way; all zero when nothing is."""
        return {"loading": len(self._active), "bad_blocks": len(self._bad_blocks), **self._ledger.counts()}

    def close(self) -> None:
        """Ends loads and the engine; peers that still read get an error."""
        for active in self._active.values():
            active.cancel()
        self._threads.shutdown(wait=True)
        self._engine.close()

    # -- the loads' threads -------------------------------------------------------------------------------------------

    def _run(self, active: ActiveLoad) -> None:
        began = time.monotonic()
        cause = ""
        try:
            self._load(active)
        except LoadCancelledError:
            cause = "cancelled"
        except (LoadFailedError, EngineError, UnsupportedError) as error:
            cause = str(error)
        except Exception as error:  # a fault of ours must cost one request, not the serving process
            logger.exception("%s: request %s", self._name, active.load.request_id)
            cause = f"{type(error).__name__}: {error}"
        self._release(active)
        active.end(cause)
        logger.debug("%s: request %s: %d blocks in %.1f ms %s", self._name, active.load.request_id,
                     len(active.load.local), (time.monotonic() - began) * 1e3, cause)  # fmt: skip

    def _sources(self, load: Load) -> list[WorkerCard]:
        handover = load.handover
        ranks = sources_of(
            self._shard.tp_rank, self._shard.tp_size, handover.total_heads, len(handover.workers), handover.replicated
        )
        return [handover.workers[rank] for rank in ranks]

    def _load(self, active: ActiveLoad) -> None:
        load = active.load
        if not load.local:
            return
        assert self._layout is not None and self._caches is not None
        caches: list[RemoteCache] = []
        try:
            pulls: list[Pull] = []
            for card in self._sources(load):
                cache = self._caches.get(card)
                caches.append(cache)
                self._check_promise(load, cache)
                pull = Pull(self._engine, self._layout, cache, load.local, load.remote)
                active.add(pull)
                pulls.append(pull)
            for layer in range(len(self._layout.layers)):
                for pull in pulls:
                    if active.cancelled:
                        raise LoadCancelledError
                    pull.submit(layer, self._options.transfer_timeout_ms)
            for layer in range(len(self._layout.layers)):
                for pull in pulls:
                    pull.wait(layer)
                active.layer_done()
            for cache in caches:
                self._check_promise(load, cache)
        except (LoadFailedError, EngineError):
            for pull in pulls:
                pull.cancel()  # nothing may move into blocks that are reported as failed
            if active.cancelled:
                raise LoadCancelledError from None
            for cache in caches:
                if not self._reachable(cache):
                    self._caches.drop(cache)
            raise

    def _reachable(self, cache: RemoteCache) -> bool:
        cell = self._free_cells.get()
        try:
            read_slot(self._engine, cache, 0, self._cells.addr + cell, self._options.connect_timeout_ms)
        except EngineError:
            return False
        finally:
            self._free_cells.put(cell)
        return True

    def _check_promise(self, load: Load, cache: RemoteCache) -> None:
        """One look at the slot. LoadFailedError: the blocks are not this request's (any more)."""
        cell = self._free_cells.get()
        try:
            read_slot(
                self._engine, cache, load.handover.slot, self._cells.addr + cell, self._options.connect_timeout_ms
            )
            found = bytes(self._cells.memoryview()[cell : cell + NONCE_BYTES])
        finally:
            self._free_cells.put(cell)
        if found != load.handover.nonce:
            raise LoadFailedError(
                f"the prefill side no longer keeps the blocks of {load.handover.request_id}: they were read, or expired, before"
            )

    def _release(self, active: ActiveLoad) -> None:
        """Tells every prefill rank that waits for this one that we are done, however it went."""
        handover = active.load.handover
        for rank, card in enumerate(handover.workers):
            readers = readers_of(
                rank, self._shard.tp_size, handover.total_heads, len(handover.workers), handover.replicated
            )
            if self._shard.tp_rank not in readers:
                continue
            message = release_message(handover.nonce, self._shard.tp_rank, len(readers))
            try:
                assert self._caches is not None
                if not active.load.local:
                    self._caches.get(card)
                self._engine.send_notify(card.engine_id, RELEASE, message, self._options.connect_timeout_ms)
            except (EngineError, LoadFailedError, UnsupportedError) as error:
                logger.warning("%s: the prefill side was not told that %s is done, its lease will end: %s",
                               self._name, handover.request_id, error)  # fmt: skip
