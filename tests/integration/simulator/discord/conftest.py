"""A simulated Discord for each test, and plain HTTP to it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

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
