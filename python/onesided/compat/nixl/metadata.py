"""An agent's metadata for other agents: opaque bytes for programs, checked completely before use."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from onesided.compat.nixl.codes import nixlMismatchError, refusal

_MAGIC = b"onesided-nixl-1\n"
_FIELD = struct.Struct("<Q")


@dataclass(frozen=True)
class AgentMetadata:
    """A value. `engine_id` is empty in partial metadata without connection information."""

    agent: str
    engine_id: str
    described: tuple[tuple[int, bytes], ...]  # kind of memory (nixl_mem_t), Engine.describe()

    def encode(self) -> bytes:
        fields = [self.agent.encode(), self.engine_id.encode()]
        for kind, blob in self.described:
            fields += [bytes([kind]), blob]
        body = b"".join(_FIELD.pack(len(field)) + field for field in fields)
        return _MAGIC + struct.pack("<QI", len(body), zlib.crc32(body)) + body


def decode(blob: bytes) -> AgentMetadata:
    """nixlMismatchError: not metadata of this version of onesided, or not all of it."""
    if not isinstance(blob, (bytes, bytearray, memoryview)):
        raise TypeError(f"metadata is bytes, got {type(blob).__name__}")
    blob = bytes(blob)
    if not blob.startswith(_MAGIC):
        whose = "of NIXL itself" if blob.startswith(b"nixlSerDes") else "that no agent of this version made"
        raise refusal(nixlMismatchError, f"metadata {whose} ({len(blob)} bytes): both sides need the same package")
    head = len(_MAGIC) + 12
    if len(blob) < head:
        raise refusal(nixlMismatchError, f"metadata is cut short: {len(blob)} bytes")
    nbytes, checksum = struct.unpack_from("<QI", blob, len(_MAGIC))
    body = blob[head:]
    if len(body) != nbytes or zlib.crc32(body) != checksum:
        raise refusal(nixlMismatchError, f"metadata is damaged: {len(body)} of {nbytes} bytes, or a wrong checksum")
    fields: list[bytes] = []
    at = 0
    while at < len(body):
        size = _FIELD.unpack_from(body, at)[0] if at + _FIELD.size <= len(body) else len(body)
        if size > len(body) - at - _FIELD.size:
            raise refusal(nixlMismatchError, "metadata is damaged: a field runs past the end")
        fields.append(body[at + _FIELD.size : at + _FIELD.size + size])
        at += _FIELD.size + size
    if len(fields) < 2 or len(fields) % 2 or any(len(kind) != 1 for kind in fields[2::2]):
        raise refusal(nixlMismatchError, "metadata is damaged: fields are missing")
    try:
        agent, engine_id = fields[0].decode(), fields[1].decode()
    except UnicodeDecodeError:
        raise refusal(nixlMismatchError, "metadata is damaged: a name is no text") from None
    described = zip(fields[2::2], fields[3::2], strict=True)
    return AgentMetadata(agent, engine_id, tuple((kind[0], blob) for kind, blob in described))
