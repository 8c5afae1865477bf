"""Waiting for what happens elsewhere, with a deadline."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

ValueT = TypeVar("ValueT")
_LOOK_SECONDS = 0.005


async def until(condition: Callable[[], Awaitable[ValueT] | ValueT], *, seconds: float = 60) -> ValueT:
    """Returns the first true value of the condition, a function or a coroutine function. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            value = await found if inspect.isawaitable(found) else found
            if value:
                return cast(ValueT, value)
            await asyncio.sleep(_LOOK_SECONDS)
