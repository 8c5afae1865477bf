"""The connection is made anew after each break, after a pause that grows only while Discord stays away."""

import asyncio
import time
from typing import Any

import discord
import pytest

from bots.discord.app import DiscordApp
from core.domain.errors import ConfigurationError
from tests.histories.virtual_time import in_virtual_time

WEEK_SECONDS = 7 * 86_400.0


@in_virtual_time
async def test_a_break_after_a_week_is_repaired_as_fast_as_the_first() -> None:
    none: Any = None
    app, clock, pauses = (DiscordApp(token="t", receive=none, cursors=none), time.monotonic, list[float]())
    lasts, broke_at = iter((0.0, 0.0, 0.0, WEEK_SECONDS, 0.0)), clock()

    async def connect() -> None:
        nonlocal broke_at
        pauses.append(round(clock() - broke_at))
        seconds = next(lasts, None)
        if seconds is None:  # Discord refuses the bot for good
            socket: Any = None
            raise discord.ConnectionClosed(socket, shard_id=None, code=4004)
        await asyncio.sleep(seconds)
        broke_at = clock()
        raise OSError("the connection broke")

    async def succeed(*_arguments: object) -> None:
        """Discord takes the token, and there is nothing to close."""

    client: Any = app.client
    client.connect, client.wait_until_ready = connect, asyncio.Event().wait
    client.login = client.close = succeed
    with pytest.raises(ConfigurationError, match="THREADHAND_DISCORD_TOKEN"):
        await app.start()
    assert pauses == [0, 1, 2, 4, 1, 2]
