"""The frames on a sandbox's byte stream: kinds, limits and encoding."""

from __future__ import annotations

import struct

from sandbox.inside.fast_stdlib import dumps

TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from typing import Any

PROTOCOL_VERSION = 1

HELLO = 1  # both ways, channel 0, JSON: the program sends its hello first
OPEN = 2  # host to inside, JSON {"op": ...}: starts a call on a fresh channel
DATA = 3  # both ways: a piece of a call's data, limited by credit
END = 4  # both ways: no more data from this side
CREDIT = 5  # both ways, 4 bytes: the receiver has consumed that many bytes
RESULT = 6  # inside to host, JSON: the call succeeded, the channel is free
ERROR = 7  # inside to host, JSON {"code", "message"}: the call failed, the channel is free
CANCEL = 8  # host to inside: the call is cancelled

HEADER = struct.Struct(">IBI")  # payload length, kind, channel
CREDIT_AMOUNT = struct.Struct(">I")

DATA_BYTES_MAX = 64 * 1024
JSON_BYTES_MAX = 4 * 1024 * 1024
WINDOW_BYTES = 512 * 1024  # unacknowledged data bytes on one channel


def encode_frame(kind: int, channel: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind, channel) + payload


def encode_json_frame(kind: int, channel: int, value: dict[str, Any]) -> bytes:
    """Raises ValueError if the value is too large for a frame."""
    payload = dumps(value).encode()
    if len(payload) > JSON_BYTES_MAX:
        raise ValueError("the answer is too large for one frame")
    return encode_frame(kind, channel, payload)


def payload_bytes_max(kind: int) -> int:
    """Returns the maximum payload of a kind: 0 for kinds without payload, -1 for an unknown kind."""
    if kind in (HELLO, OPEN, RESULT, ERROR):
        return JSON_BYTES_MAX
    if kind == DATA:
        return DATA_BYTES_MAX
    if kind == CREDIT:
        return CREDIT_AMOUNT.size
    return 0 if kind in (END, CANCEL) else -1
