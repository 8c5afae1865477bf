"""A simulated Discord for each test, plain HTTP to it, and the real client library pointed at it."""

import warnings
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import yarl

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the library imports `audioop`
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

from simulator.discord import DiscordSettings, DiscordSimulator
from tests.integration.simulator.discord.bot import TOKEN, Rest


@pytest.fixture
async def simulator() -> AsyncIterator[DiscordSimulator]:
    settings = DiscordSettings(rate_limit_scale=0)
    async with DiscordSimulator(token=TOKEN, channels=("general", "random"), settings=settings) as running:
        yield running


@pytest.fixture
async def rest(simulator: DiscordSimulator) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession() as session:
        yield Rest(simulator, session)


@pytest.fixture
def library(simulator: DiscordSimulator) -> Iterator[None]:
    """Points the client library at the simulator, and back."""
    base, gateway = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
    Route.BASE = simulator.api_url
    DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(simulator.gateway_url)
    yield
    Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = base, gateway
