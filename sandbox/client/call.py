"""One call to the program inside, and the reading of what comes back: checked as hostile."""

import asyncio
import json
from collections import deque
from typing import cast

from core.domain.errors import LeaseLost, ToolError
from core.domain.messages import JsonObject
from sandbox.inside import frames


class Call:
    """A call that waits for its answer, and its data on the way."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self.pieces: deque[bytes] = deque()
        self.pieces_bytes = 0
        self.owed_bytes = 0
        self.takes_data = False
        self.credit = frames.WINDOW_BYTES
        self.changed = asyncio.Event()


def take_credit(call: Call, payload: bytes) -> None:
    if len(payload) != frames.CREDIT_AMOUNT.size:
        raise ValueError("a credit of a wrong size")
    amount: int = frames.CREDIT_AMOUNT.unpack(payload)[0]
    call.credit = min(call.credit + amount, frames.WINDOW_BYTES)


def as_object(payload: bytes) -> JsonObject:
    value: object = json.loads(payload)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return cast("JsonObject", value)


def refusal(body: JsonObject) -> ToolError | LeaseLost:
    message = body.get("message")
    if not isinstance(message, str):
        raise ValueError("an error without a message")
    if body.get("code") == "stale":
        return LeaseLost("another run uses this sandbox")
    return ToolError(plain(message)[:2000])


def plain(text: str) -> str:
    """Without lone surrogates, which no database or network takes."""
    return text.encode("utf-8", "replace").decode()
