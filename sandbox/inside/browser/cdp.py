"""Speaking the browser's own protocol, whose messages have no types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from playwright.async_api import CDPSession

Message = dict[str, Any]


async def send(session: CDPSession, method: str, message: Message) -> Message:
    return await cast(Any, session).send(method, message)


def listen(session: CDPSession, event: str, listener: Callable[[Message], None]) -> None:
    cast(Any, session).on(event, listener)
