"""A gateway client that says exactly what a test wants said."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import TOKEN

GUILDS, MESSAGES, REACTIONS, DIRECT, CONTENT = 1 << 0, 1 << 9, 1 << 10, 1 << 12, 1 << 15
ALL = GUILDS | MESSAGES | REACTIONS | DIRECT | CONTENT
PROPERTIES = {"os": "linux", "browser": "tests", "device": "tests"}


@dataclass
class Socket:
    socket: aiohttp.ClientWebSocketResponse

    async def identify(self) -> dict[str, Any]:
        """Answers READY's payload; GUILD_CREATE is the next frame."""
        payload = {"token": TOKEN, "intents": ALL, "properties": PROPERTIES}
        await self.socket.send_json({"op": 2, "d": payload})
        return await self.event("READY")

    async def frame(self, op: int) -> dict[str, Any]:
        frame = await self.socket.receive_json(timeout=30)
        assert frame["op"] == op, frame
        return frame

    async def event(self, name: str) -> dict[str, Any]:
        frame = await self.frame(0)
        assert frame["t"] == name, frame
        return frame["d"]


@asynccontextmanager
async def opened(simulator: DiscordSimulator, query: str = "?v=10&encoding=json") -> AsyncIterator[Socket]:
    """A connection that has had its HELLO."""
    async with aiohttp.ClientSession() as session, session.ws_connect(simulator.gateway_url + query) as socket:
        client = Socket(socket)
        await client.frame(10)
        yield client
