"""Several bots with one token at a strict Discord: what it allows is for all of them together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from discord.http import Route

from bots.delivery.rate_limiter import MemoryRateBudget, RateLimiter
from bots.discord.app import DiscordApp
from bots.discord.rest.client import global_rate_limit
from core.domain.errors import SurfaceRateLimited
from simulator.discord import DiscordSettings, DiscordSimulator
from tests.integration.bots.discord.conftest import Program
from tests.support.waiting import until

CHANNELS = tuple(f"channel{number}" for number in range(12))
CALLS = 120


@asynccontextmanager
async def signed_in(
    discord: DiscordSimulator, limiter: RateLimiter, *, limits_proactively: bool
) -> AsyncIterator[DiscordApp]:
    program = Program()
    app = DiscordApp(token=discord.world.token, receive=program.receive, cursors=program, api_url=discord.api_url)
    app.client.rest.call_limiter.limiter = limiter
    app.client.rest.call_limiter.limits_proactively = limits_proactively
    scale, discord.settings.rate_limit_scale = discord.settings.rate_limit_scale, 0
    await app.sign_in()
    discord.settings.rate_limit_scale = scale
    try:
        yield app
    finally:
        await app.close()


def refused(discord: DiscordSimulator) -> int:
    return sum(call.status == 429 for call in discord.calls)


@pytest.fixture
async def strict() -> AsyncIterator[DiscordSimulator]:
    async with DiscordSimulator(settings=DiscordSettings(), channels=CHANNELS) as simulator:
        yield simulator


async def test_what_one_bot_is_refused_the_other_waits_for(strict: DiscordSimulator) -> None:
    """discord.py sits out a refusal by itself, and tells nobody: it is heard all the same."""
    waits: list[tuple[str, str]] = []
    budget = MemoryRateBudget()
    limiter = RateLimiter(budget, waited=lambda platform, call, _s: waits.append((platform, call)))
    strict.settings.rate_limit_scale = 2.0
    counted = global_rate_limit(strict.world.token, limits_proactively=False)
    async with (
        signed_in(strict, limiter, limits_proactively=False) as one,
        signed_in(strict, limiter, limits_proactively=False) as other,
    ):
        # a route without a limit of its own
        calls = (one.client.rest.call("GET", "/users/@me") for _ in range(CALLS))
        reading = asyncio.gather(*calls)
        await until(lambda: budget.is_blocked(counted))
        before = refused(strict)
        strict.settings.rate_limit_scale = 0
        await other.client.rest.call("GET", "/users/@me")
        assert waits == [("discord", "global")]
        await reading
    assert before > 0


async def test_what_answers_people_waits_for_nothing(strict: DiscordSimulator) -> None:
    budget = MemoryRateBudget()
    await budget.record_refusal([global_rate_limit(strict.world.token, limits_proactively=True)], seconds=100)
    async with signed_in(strict, RateLimiter(budget), limits_proactively=True) as app:
        call_limiter = app.client.rest.call_limiter
        for path in ("/interactions/1/token/callback", "/webhooks/1/token/messages/@original"):
            async with asyncio.timeout(30):
                await call_limiter.wait_for_turn(Route("POST", path))
        with pytest.raises(SurfaceRateLimited) as limited:
            await app.client.rest.call("GET", "/users/@me")
    assert limited.value.retry_after_seconds > 50
