"""Waiting for what happens elsewhere, with a deadline, and looking at a channel."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from simulator.slack import SlackSimulator
from simulator.view import SeenChannel

ValueT = TypeVar("ValueT")


async def until(condition: Callable[[], ValueT]) -> ValueT:
    """The first true value of the condition."""
    deadline = time.monotonic() + 30
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
    return value


def seen(slack: SlackSimulator, name: str = "general") -> SeenChannel:
    """The channel as a person sees it now."""
    return next(channel for channel in slack.view().channels if channel.name == name)
