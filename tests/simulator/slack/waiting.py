"""Waiting for what happens elsewhere, with a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")


async def until(condition: Callable[[], ValueT], *, seconds: float = 5.0) -> ValueT:
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
    return value
