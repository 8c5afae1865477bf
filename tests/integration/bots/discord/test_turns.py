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
from core.tasks import cancel
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


async def test_there_are_never_more_than_fifty_places_in_a_second() -> None:
    now = 100.0
    budget = MemoryRateBudget(clock=lambda: now)
    counted = global_rate_limit("token", limits_proactively=True)
    places: list[float] = []
    for pause in (0, 0.3, 2, 0.7, 0):
        now += pause
        places += [now + await budget.reserve(counted, wait_seconds_max=30) for _ in range(40)]
    for first in places:
        assert sum(first <= place < first + 1 for place in places) <= 50


async def test_who_is_cancelled_while_waiting_makes_no_call(strict: DiscordSimulator) -> None:
    """Another process may go on with the post by then."""
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        waits.set()
        await goes_on.wait()

    budget = MemoryRateBudget()
    async with signed_in(strict, RateLimiter(budget, sleep=sleep), limits_proactively=True) as app:
        before = len(strict.calls)
        await budget.record_refusal([global_rate_limit(strict.world.token, limits_proactively=True)], seconds=0.4)
        call = asyncio.ensure_future(app.client.rest.call("GET", "/users/@me"))
        async with asyncio.timeout(30):
            await waits.wait()
        await cancel(call)
        goes_on.set()
        left = [task for task in asyncio.all_tasks() if task.get_name().startswith("discord GET")]
        await asyncio.gather(*left)
        assert len(strict.calls) == before
