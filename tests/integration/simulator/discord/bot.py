"""The bot's side in these tests: the real client library, and plain calls."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import discord

from core.tasks import cancel, spawn
from simulator.discord import DiscordSimulator
from tests.support.waiting import until

TOKEN = "test-token"


@dataclass
class Rest:
    """Plain calls with the bot's token: (status, body)."""

    simulator: DiscordSimulator
    session: aiohttp.ClientSession

    async def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = TOKEN,
        form: aiohttp.FormData | None = None,
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bot {token}"} if token else {}
        arguments = {"data": form} if form is not None else {"json": body} if body is not None else {}
        url = self.simulator.api_url + path
        async with self.session.request(method, url, headers=headers, **arguments) as response:
            text = await response.read()
            if response.status == 204:
                return 204, None
            assert response.headers["Content-Type"] == "application/json"
            return response.status, await response.json() if text else None


def form(payload: str, *files: tuple[str, str, bytes]) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False)
    data.add_field("payload_json", payload, content_type="application/json")
    for field, name, content in files:
        data.add_field(field, io.BytesIO(content), filename=name, content_type="application/octet-stream")
    return data


class Bot(discord.Client):
    """Keeps what it hears; `on` may answer."""

    def __init__(self, intents: discord.Intents) -> None:
        super().__init__(intents=intents, guild_ready_timeout=0.05)
        self.heard: list[tuple[str, object]] = []
        self.answer: Callable[[discord.Interaction], Awaitable[None]] | None = None

    def dispatch(self, event: str, /, *arguments: object, **named: object) -> None:
        self.heard.append((event, arguments[0] if arguments else None))
        super().dispatch(event, *arguments, **named)

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        if self.answer is not None:
            await self.answer(interaction)

    def of(self, event: str) -> list[Any]:
        return [item for name, item in self.heard if name == event]


@asynccontextmanager
async def connected(intents: discord.Intents | None = None) -> AsyncIterator[Bot]:
    """The library's own client, ready."""
    if intents is None:
        intents = discord.Intents.default()
        intents.message_content = True
    bot = Bot(intents)
    task = spawn(bot.start(TOKEN), name="test bot")
    try:
        await until(lambda: bot.of("ready") or task.done())
        yield bot
    finally:
        await bot.close()
        await cancel(task)


async def ask(bot: Bot, *controls: discord.ui.Item[Any]) -> str:
    """Posts a message with these controls, or with the button `go`, in the first channel. Returns its id."""
    channel = bot.get_channel(4001)
    assert isinstance(channel, discord.TextChannel)
    view = discord.ui.View()
    for control in controls or (discord.ui.Button(label="Go", custom_id="go"),):
        view.add_item(control)
    return str((await channel.send("press", view=view)).id)


def texts(simulator: DiscordSimulator) -> list[str]:
    """What the messages of the first channel say."""
    return [
        "".join(getattr(element, "text", "") for element in message.elements)
        for message in simulator.view().channels[0].messages
    ]
