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
    sequence: int = 0

    async def send(self, op: int, payload: object) -> None:
        await self.socket.send_json({"op": op, "d": payload})

    async def identify(self, intents: int = ALL, token: str = TOKEN, **more: object) -> dict[str, Any]:
        """Answers READY's payload; GUILD_CREATE is the next frame."""
        await self.send(2, {"token": token, "intents": intents, "properties": PROPERTIES, **more})
        return await self.event("READY")

    async def resume(self, session_id: str, sequence: int) -> None:
        await self.send(6, {"token": TOKEN, "session_id": session_id, "seq": sequence})

    async def frame(self, op: int) -> dict[str, Any]:
        frame = await self.socket.receive_json(timeout=30)
        assert frame["op"] == op, frame
        if frame["s"] is not None:
            self.sequence = frame["s"]
        return frame

    async def event(self, name: str) -> dict[str, Any]:
        frame = await self.frame(0)
        assert frame["t"] == name, frame
        return frame["d"]

    async def close_code(self) -> int | None:
        message = await self.socket.receive(timeout=30)
        assert message.type == aiohttp.WSMsgType.CLOSE, message
        return self.socket.close_code


@asynccontextmanager
async def opened(simulator: DiscordSimulator, query: str = "?v=10&encoding=json") -> AsyncIterator[Socket]:
    """A connection that has had its HELLO."""
    async with aiohttp.ClientSession() as session, session.ws_connect(simulator.gateway_url + query) as socket:
        client = Socket(socket)
        await client.frame(10)
        yield client
