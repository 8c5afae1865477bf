"""The packets that the browser's server and the host exchange on one connection: JSON with a picture behind it."""

from __future__ import annotations

import json
import struct
from typing import Any, Protocol, cast

HEAD = struct.Struct(">II")  # bytes of JSON, bytes of the picture
JSON_BYTES_MAX = 1024 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024


class Broken(Exception):
    """The other side does not keep to the rules."""


class Reader(Protocol):
    async def readexactly(self, n: int, /) -> bytes: ...


def encode(value: dict[str, Any], body: bytes = b"") -> bytes:
    """Raises Broken when it is larger than the other side takes."""
    text = json.dumps(value, separators=(",", ":")).encode()
    if len(text) > JSON_BYTES_MAX or len(body) > BODY_BYTES_MAX:
        raise Broken("a packet is too large")
    return HEAD.pack(len(text), len(body)) + text + body


async def receive(reader: Reader) -> tuple[dict[str, Any], bytes]:
    """The next packet. Raises Broken, or what the reader raises at the end of its stream."""
    text_bytes, body_bytes = HEAD.unpack(await reader.readexactly(HEAD.size))
    if text_bytes > JSON_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        raise Broken("a packet is too large")
    text = await reader.readexactly(text_bytes)
    body = await reader.readexactly(body_bytes) if body_bytes else b""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Broken("a packet holds no JSON") from None
    if not isinstance(value, dict):
        raise Broken("a packet holds no object")
    return cast("dict[str, Any]", value), body
