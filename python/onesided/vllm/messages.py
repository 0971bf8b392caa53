"""What the connector's four parts (scheduler and worker, on the prefill and on the decode side) tell each other.

Prefill's scheduler writes a Handover into the request's kv_transfer_params; whatever routes requests carries it to the
decode side. The steps' metadata goes from a scheduler to its own workers, as vLLM pickles it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onesided.vllm.options import UnsupportedError

FORMAT = 1  # of a handover; another number is refused
KEY = "onesided"  # of the handover in kv_transfer_params
NONCE_BYTES = 16
RELEASE = "onesided.kv.release"  # name of the notification that ends one reader's use of a request's blocks


@dataclass(frozen=True)
class WorkerCard:
    """How to reach a prefill worker: its engine, and where its card (layout and rows) can be read. A value."""

    engine_id: str
    card: bytes  # a description, of Engine.describe()
    nbytes: int


@dataclass(frozen=True)
class Handover:
    """A finished prefill: whose blocks, which promise protects them. A value."""

    request_id: str
    workers: tuple[WorkerCard, ...]  # by tensor-parallel rank
    blocks: tuple[int, ...]  # of the whole prompt, in order
    slot: int
    nonce: bytes
    num_tokens: int
    total_heads: int
    replicated: bool  # every rank holds the same cache (MLA)

    def to_params(self, engine_name: str) -> dict[str, Any]:
        """The kv_transfer_params of the response, JSON only."""
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": engine_name,
            "remote_request_id": self.request_id,
            "remote_block_ids": list(self.blocks),
            "tp_size": len(self.workers),
            KEY: {
                "format": FORMAT,
                "workers": [[one.engine_id, base64.b64encode(one.card).decode(), one.nbytes] for one in self.workers],
                "slot": self.slot,
                "nonce": self.nonce.hex(),
                "num_tokens": self.num_tokens,
                "total_heads": self.total_heads,
                "replicated": self.replicated,
            },
        }

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Handover:
        """Decodes totally. UnsupportedError: another connector's parameters, another format, or damaged ones."""
        given = params.get(KEY)
        if not isinstance(given, Mapping):
            raise UnsupportedError(
                f"kv_transfer_params has no {KEY!r} part: the prefill side runs another connector; run onesided.vllm there too."
            )
        if given.get("format") != FORMAT:
            raise UnsupportedError(f"the handover has format {given.get('format')!r}; this release reads {FORMAT}.")
        try:
            workers = tuple(
                WorkerCard(str(engine), base64.b64decode(card, validate=True), int(nbytes))
                for engine, card, nbytes in given["workers"]
            )
            found = cls(
                request_id=str(params["remote_request_id"]),
                workers=workers,
                blocks=tuple(int(block) for block in params["remote_block_ids"]),
                slot=int(given["slot"]),
                nonce=bytes.fromhex(given["nonce"]),
                num_tokens=int(given["num_tokens"]),
                total_heads=int(given["total_heads"]),
                replicated=bool(given["replicated"]),
            )
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise UnsupportedError(f"the handover is damaged: {type(error).__name__}: {error}") from error
        if not workers or len(found.nonce) != NONCE_BYTES or found.slot < 0 or min(found.blocks, default=0) < 0:
            raise UnsupportedError("the handover is damaged: no workers, or a nonce, slot or block out of range")
        if found.total_heads < 1 or not all(0 < one.nbytes <= 1 << 26 for one in workers):
            raise UnsupportedError("the handover is damaged: no heads, or a card of an impossible size")
        return found


@dataclass(frozen=True)
class Promise:
    """Prefill: while the slot holds the nonce, the request's blocks are valid. A value."""

    slot: int
    nonce: bytes


@dataclass(frozen=True)
class Load:
    """Decode: blocks to read for one request. No blocks: only release them on the prefill side. A value."""

    request_id: str
    handover: Handover
    local: tuple[int, ...] = ()
    remote: tuple[int, ...] = ()
    waits: bool = True  # the scheduler waits for finished_recving


@dataclass
class StepMetadata:
    """From the scheduler to its workers, once a step. Confined to one thread at a time."""

    promises: dict[str, Promise] = field(default_factory=dict)
    withdrawn: list[str] = field(default_factory=list)
    offered: dict[str, float] = field(default_factory=dict)  # request id -> lease in seconds
    loads: list[Load] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)  # of loads that failed on any rank, for every rank's log


def release_message(nonce: bytes, reader: int, readers: int) -> bytes:
    """One of `readers` decode ranks has finished, however it went."""
    return json.dumps({"nonce": nonce.hex(), "reader": reader, "readers": readers}).encode()


def parse_release(message: bytes) -> tuple[bytes, int, int] | None:
    """(nonce, reader, readers), or None for anything else."""
    try:
        given = json.loads(message)
        nonce, reader, readers = bytes.fromhex(given["nonce"]), int(given["reader"]), int(given["readers"])
    except (ValueError, TypeError, KeyError):
        return None
    return (nonce, reader, readers) if len(nonce) == NONCE_BYTES and reader >= 0 and readers > 0 else None
