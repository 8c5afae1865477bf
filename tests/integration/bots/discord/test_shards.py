"""Several processes with one token: each hears its own shards, and what Discord allows is for all together."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from discord.http import Route

from bots.delivery.content import Notice
from bots.delivery.rate_limiter import MemoryRateBudget, RateLimiter
from bots.discord.app import DiscordApp
from bots.discord.rest.client import global_rate_limit
from bots.settings.discord import Shards
from core.domain.actions import IncomingMessage
from core.domain.errors import ConfigurationError, SurfaceRateLimited, SurfaceRefused
from core.domain.threads import Address
from simulator.discord import DiscordSettings, DiscordSimulator
from simulator.discord.rules.permissions import MANAGE_THREADS
from simulator.discord.world import FORUM
from tests.integration.bots.discord.conftest import Program, bot
from tests.support.closing import close_after
from tests.support.waiting import until

FIRST, SECOND = Shards(0, 0, 2), Shards(1, 1, 2)
Connect = Callable[[Program, Shards], Awaitable[DiscordApp]]


@pytest.fixture
async def connect(discord: DiscordSimulator) -> AsyncIterator[Connect]:
    """Connects the bot of one process."""
    apps: list[DiscordApp] = []

    async def connected(program: Program, shards: Shards) -> DiscordApp:
        app = bot(discord, program, shards=shards)
        apps.append(app)
        await app.start()
        return app

    yield connected
    for app in apps:
        await app.close()


def places(discord: DiscordSimulator) -> tuple[str, str, str]:
    """A channel on shard 0, one on shard 1, and one of direct messages."""
    discord.add_guild("South", people=("alice",), shard=1)
    here, there = (one.channel_id for one in discord.view().channels if not one.is_direct)
    return here, there, next(one.channel_id for one in discord.view().channels if one.is_direct)


def texts(program: Program) -> list[str]:
    return [one.text for one in program.received if isinstance(one, IncomingMessage)]


async def test_each_process_hears_what_belongs_to_its_shards(discord, connect) -> None:
    here, there, direct = places(discord)
    first = Program()
    second = Program(claimed=first.claimed, cursor_of=first.cursor_of)  # around the same database
    await connect(first, FIRST)
    await connect(second, SECOND)
    await discord.say("alice", here, "@threadhand north")
    await discord.say("alice", there, "@threadhand south")
    await until(lambda: first.received and second.received)
    await discord.say("alice", direct, "direct")
    await until(lambda: len(first.received) == 2)
    assert (texts(first), texts(second)) == (["north", "direct"], ["south"])
    guild_id = (1 << 22) + 3002
    await until(lambda: {f"3001/{here}", f"{guild_id}/{there}", f"0/{direct}"} <= set(first.cursor_of))


async def test_what_shards_without_a_process_missed_is_read_by_it_and_by_no_other(discord, connect) -> None:
    here, there, _ = places(discord)
    first = Program()
    second = Program(claimed=first.claimed, cursor_of=first.cursor_of)  # around the same database
    await connect(first, FIRST)
    away = await connect(second, SECOND)
    thread = await discord.say("alice", there, "@threadhand south")
    await until(lambda: second.received)
    await until(lambda: any(one.threads for one in discord.view().channels))
    await until(lambda: any(scope.endswith(f"/{there}") for scope in second.cursor_of))
    await away.close()

    await discord.say("alice", there, "@threadhand again")
    await discord.say("alice", there, "and here", thread_id=thread)
    asked = len(discord.calls)
    await connect(first, FIRST)
    await discord.say("alice", here, "@threadhand north")
    await until(lambda: first.received)
    assert texts(first) == ["north"]
    paths = [f"{one.path}/" for one in discord.calls[asked:]]
    assert not [one for one in paths if f"/{there}/" in one or f"/{thread}/" in one]

    await connect(second, SECOND)
    await until(lambda: len(second.received) == 3)
    assert sorted(texts(second)) == ["again", "and here", "south"]
    assert texts(first) == ["north"]


@pytest.mark.parametrize("shards", [FIRST, SECOND])
async def test_any_process_begins_tasks_in_a_forum_and_respects_its_locks(discord, connect, shards: Shards) -> None:
    """Any process may carry out a schedule or a hook, even if only another one has the forum in its cache."""
    discord.settings.bot_permissions |= MANAGE_THREADS
    discord.add_guild("South", people=("alice",), shard=1)
    forum = discord.add_channel("reports", FORUM)
    app = await connect(Program(), shards)
    place = Address(platform="discord", workspace_id=forum.guild_id, channel_id=forum.channel_id, thread_key="")

    async def is_allowed() -> None:
        pass

    async def begin(delivery_id: str) -> str:
        return await app.surface.begin_thread(
            place,
            Notice(markdown="It is time."),
            title="News",
            delivery_id=delivery_id,
            may_be_posted=True,
            precondition=is_allowed,
        )

    ref = await begin("d1")
    assert await begin("d1") == ref
    assert await begin("d2") != ref
    thread = replace(place, thread_key=ref)
    await app.surface.post(thread, Notice(markdown="Done."), delivery_id="d3")
    discord.lock_thread(ref)
    await until(lambda: (cached := app.client.get_channel(int(ref))) is None or cached.locked)
    with pytest.raises(SurfaceRefused, match="closed the thread"):
        await app.surface.post(thread, Notice(markdown="More."), delivery_id="d4")


async def test_a_division_that_discord_refuses_names_its_setting(discord, program) -> None:
    app = bot(discord, program, shards=Shards(2, 2, 2))
    with pytest.raises(ConfigurationError, match="THREADHAND_DISCORD_SHARDS"):
        await app.start()


CHANNELS = tuple(f"channel{number}" for number in range(12))
CALLS = 120


@asynccontextmanager
async def signed_in(
    discord: DiscordSimulator, limiter: RateLimiter, *, limits_proactively: bool
) -> AsyncIterator[DiscordApp]:
    app = bot(discord, Program())
    app.client.rest.call_limiter.limiter = limiter
    app.client.rest.call_limiter.limits_proactively = limits_proactively
    scale, discord.settings.rate_limit_scale = discord.settings.rate_limit_scale, 0
    await app.sign_in()
    discord.settings.rate_limit_scale = scale
    async with close_after(app):
        yield app


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
        before = sum(call.status == 429 for call in strict.calls)
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
