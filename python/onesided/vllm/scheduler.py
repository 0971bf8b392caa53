"""The scheduler's half of the connector: which request loads what, which finished prefill keeps its blocks for whom.

Needs no vLLM to import: it uses the attributes of requests and blocks that 0.18 and 0.34 share.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from onesided.vllm.messages import NONCE_BYTES, Handover, Load, Promise, StepMetadata, WorkerCard
from onesided.vllm.options import ConnectorOptions, UnsupportedError

logger = logging.getLogger("onesided.vllm")

_FINISHED = ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")


class KvScheduler:
    """One scheduler's state. Confined to the scheduler's thread."""

    def __init__(
        self, options: ConnectorOptions, *, engine_name: str, block_size: int, total_heads: int, replicated: bool
    ) -> None:
        self._options = options
        self._engine_name = engine_name
        self._block_size = block_size
        self._total_heads = total_heads
        self._replicated = replicated
        self._workers: tuple[WorkerCard, ...] = ()
        self._free_slots = list(range(options.slots - 1, -1, -1))
        self._promises: dict[str, Promise] = {}  # prefill: requests whose blocks a peer will read
        self._loading: dict[str, Load] = {}  # decode: requests that vLLM holds back until they are loaded
        self._computed: dict[str, int] = {}  # decode: tokens that the local prefix cache has
        self._step = StepMetadata()

    def set_workers(self, cards: Mapping[int, WorkerCard]) -> None:
        """The workers' cards, by tensor-parallel rank."""
        if sorted(cards) != list(range(len(cards))):
            raise UnsupportedError(
                f"handshake metadata came for the ranks {sorted(cards)}; every rank must send its own."
            )
        self._workers = tuple(cards[rank] for rank in range(len(cards)))

    # -- decode -------------------------------------------------------------------------------------------------------

    def num_new_matched_tokens(self, request: Any, computed: int) -> tuple[int, bool]:
        """(tokens that can be read beyond `computed`, whether between steps). No side effects for the request."""
        handover = self._handover_of(request)
        if handover is None:
            return 0, False
        between_steps = self._options.load == "async"
        prompt = len(request.prompt_token_ids or ())
        if handover.num_tokens < prompt:
            logger.warning(
                "request %s: the prefill side holds %d of %d tokens; the rest is computed here",
                request.request_id, handover.num_tokens, prompt,
            )  # fmt: skip
        # Within a step the model needs at least one token to compute.
        wanted = min(handover.num_tokens, prompt if between_steps else prompt - 1) - computed
        if wanted <= 0:
            return 0, False
        self._computed[request.request_id] = computed
        return wanted, between_steps

    def _handover_of(self, request: Any) -> Handover | None:
        params = request.kv_transfer_params
        if not params or not params.get("do_remote_prefill"):
            return None
        try:
            return Handover.from_params(params)
        except UnsupportedError as error:
            logger.warning("request %s is computed here: %s", request.request_id, error)
            return None

    def after_alloc(self, request: Any, block_ids: Sequence[Sequence[int]], external: int) -> None:
        """Blocks are there: a load is planned, or (prefill) a promise is made."""
        params = request.kv_transfer_params
        if not params:
            return
        if params.get("do_remote_decode"):
            self._promise(request.request_id)
            return
        handover = self._handover_of(request)
        if handover is None:
            return
        params["do_remote_prefill"] = False  # one load a request: a failed one is computed, never tried again
        load = Load(request.request_id, handover, waits=False)
        if external > 0:
            computed = self._computed.pop(request.request_id, 0)
            first = computed // self._block_size
            last = -(-(computed + external) // self._block_size)
            between_steps = self._options.load == "async"
            load = Load(
                request.request_id,
                handover,
                tuple(block_ids[0][first:last]),
                handover.blocks[first:last],
                between_steps,
            )
            if between_steps:
                self._loading[request.request_id] = load
        self._step.loads.append(load)

    # -- prefill ------------------------------------------------------------------------------------------------------

    def _promise(self, request_id: str) -> None:
        if request_id in self._promises:
            return
        if not self._free_slots:
            logger.warning("request %s: all %d slots are promised; its blocks are not kept for a reader (option slots)",
                           request_id, self._options.slots)  # fmt: skip
            return
        promise = Promise(self._free_slots.pop(), secrets.token_bytes(NONCE_BYTES))
        self._promises[request_id] = self._step.promises[request_id] = promise

    def _withdraw(self, request_id: str) -> None:
        promise = self._promises.pop(request_id, None)
        if promise is not None:
            self._step.withdrawn.append(request_id)
            self._free_slots.insert(0, promise.slot)  # used again last: the workers know of the end long before

    def request_finished(self, request: Any, block_ids: Sequence[int]) -> tuple[bool, dict[str, Any] | None]:
        """(whether the blocks stay, kv_transfer_params of the response)."""
        params = request.kv_transfer_params
        self._computed.pop(request.request_id, None)
        if request.request_id in self._loading:  # aborted while it loads
            self._step.cancelled.append(request.request_id)
            return False, None
        if not params:
            return False, None
        if not params.get("do_remote_decode"):
            handover = self._handover_of(request)
            if handover is not None:  # aborted before it was scheduled: the prefill side must not wait for us
                params["do_remote_prefill"] = False
                self._step.loads.append(Load(request.request_id, handover, waits=False))
            return False, None
        promise = self._promises.get(request.request_id)
        if promise is None or request.status.name not in _FINISHED or not block_ids or not self._workers:
            self._withdraw(request.request_id)
            return False, None
        self._step.offered[request.request_id] = self._options.lease_s
        handover = Handover(
            request_id=request.request_id,
            workers=self._workers,
            blocks=tuple(block_ids),
            slot=promise.slot,
            nonce=promise.nonce,
            num_tokens=request.num_computed_tokens,
            total_heads=self._total_heads,
            replicated=self._replicated,
        )
        return True, handover.to_params(self._engine_name)

    # -- every step ---------------------------------------------------------------------------------------------------

    def take_step(self) -> StepMetadata:
        """What the workers are told this step."""
        step, self._step = self._step, StepMetadata()
        return step

    def step_done(self, sent: set[str], received: set[str], causes: Sequence[str]) -> None:
        """What the workers, all ranks together, reported."""
        for request_id in sent:
            promise = self._promises.pop(request_id, None)
            if promise is not None:
                self._free_slots.insert(0, promise.slot)
        for request_id in received:
            self._loading.pop(request_id, None)
        for cause in causes:
            logger.error("%s", cause)
        self._step.causes.extend(causes)

    def counts(self) -> dict[str, int]:
        """Requests that something is kept for; all zero when nothing is under way."""
        return {
            "promised": len(self._promises),
            "loading": len(self._loading),
            "computed": len(self._computed),
            "slots_used": self._options.slots - len(self._free_slots),
        }
