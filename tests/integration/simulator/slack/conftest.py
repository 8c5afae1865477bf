"""A simulated Slack and a real bolt app over Socket Mode."""

from collections.abc import AsyncIterator

import pytest
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient

from simulator.slack import SlackSettings, SlackSimulator, SlashCommand
from simulator.view import SeenChannel
from tests.support.waiting import until


def seen(slack: SlackSimulator, name: str = "general") -> SeenChannel:
    """What a person sees in the channel now."""
    return next(channel for channel in slack.view().channels if channel.name == name)


class BoltApp:
    """A Bolt app that is connected to the simulator."""

    def __init__(self, slack: SlackSimulator) -> None:
        self.client = AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)
        self.app = AsyncApp(client=self.client, signing_secret=slack.settings.signing_secret)
        self.handler = AsyncSocketModeHandler(self.app, slack.settings.app_token, ping_interval=1)

    async def __aenter__(self) -> "BoltApp":
        await self.handler.connect_async()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.handler.close_async()


@pytest.fixture
async def slack() -> AsyncIterator[SlackSimulator]:
    settings = SlackSettings(
        rate_scale=0,
        channels=("general", "random"),
        commands=(SlashCommand(name="/agent", description="Ask the agent"),),
    )
    async with SlackSimulator(settings=settings) as simulator:
        yield simulator


@pytest.fixture
async def client(slack: SlackSimulator) -> AsyncWebClient:
    return AsyncWebClient(slack.settings.bot_token, base_url=slack.api_url)


@pytest.fixture
async def bot(slack: SlackSimulator) -> AsyncIterator[BoltApp]:
    async with BoltApp(slack) as recorder:
        await until(lambda: slack.view().is_bot_connected)
        yield recorder
