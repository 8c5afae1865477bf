"""Shared by the browser's server and its clients: settings, refusals, and the messages on a connection."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Protocol, cast

WIDTH, HEIGHT = 1280, 800


class ActionRefused(Exception):
    """An action is refused; the message tells the model why, and what to do next."""


@dataclass(frozen=True)
class BrowserSettings:
    """`root` is the workspace folder, `scratch` a folder for temporary files. `proxy` is empty without one."""

    socket: str
    root: str
    scratch: str
    chromium: str
    proxy: str = ""
    proxy_user: str = ""
    proxy_password: str = ""

    @property
    def profile(self) -> str:
        return f"{self.root}/.browser"

    @property
    def downloads(self) -> str:
        return f"{self.root}/downloads"

    @classmethod
    def of(cls, value: dict[str, Any]) -> BrowserSettings:
        return cls(**{name: str(value.get(name, "")) for name in cls.__dataclass_fields__})


HEAD = struct.Struct(">II")  # number of JSON bytes, number of image bytes
PART_BYTES_MAX = 4 * 1024 * 1024
"""The limit for each of the two. It leaves room for the longest text of a page, of which JSON writes some characters as
12 bytes."""


class ProtocolError(Exception):
    """The other side violated the protocol."""


class Reader(Protocol):
    async def readexactly(self, n: int, /) -> bytes: ...


def encode_message(value: dict[str, Any], body: bytes = b"") -> bytes:
    """Raises ProtocolError if the message is larger than the other side accepts."""
    text = json.dumps(value, separators=(",", ":")).encode()
    if max(len(text), len(body)) > PART_BYTES_MAX:
        raise ProtocolError("a message is too large")
    return HEAD.pack(len(text), len(body)) + text + body


async def receive_message(reader: Reader) -> tuple[dict[str, Any], bytes]:
    """Reads the next message. Raises ProtocolError, or the error that the reader raises at the end of its stream."""
    text_bytes, body_bytes = HEAD.unpack(await reader.readexactly(HEAD.size))
    if max(text_bytes, body_bytes) > PART_BYTES_MAX:
        raise ProtocolError("a message is too large")
    text = await reader.readexactly(text_bytes)
    body = await reader.readexactly(body_bytes) if body_bytes else b""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("a message is not JSON") from None
    if not isinstance(value, dict):
        raise ProtocolError("a message is not an object")
    return cast("dict[str, Any]", value), body
