"""Processes that divide the shards of a bot: each hears, and catches up on, the guilds of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from bots.delivery.content import Notice
from bots.discord.app import DiscordApp
from bots.settings.discord import Shards
from core.domain.actions import IncomingMessage
from core.domain.errors import ConfigurationError, SurfaceRefused
from core.domain.threads import Address
from simulator.discord import DiscordSimulator
from simulator.discord.rules.permissions import MANAGE_THREADS
from simulator.discord.world import FORUM
from tests.integration.bots.discord.conftest import Program
from tests.support.waiting import until

FIRST, SECOND = Shards(0, 0, 2), Shards(1, 1, 2)
Connect = Callable[[Program, Shards], Awaitable[DiscordApp]]


@pytest.fixture
async def connect(discord: DiscordSimulator) -> AsyncIterator[Connect]:
    """Connects the bot of one process."""
    apps: list[DiscordApp] = []

    async def connected(program: Program, shards: Shards) -> DiscordApp:
        app = bot(discord, program, shards)
        apps.append(app)
        await app.start()
        return app

    yield connected
    for app in apps:
        await app.close()


def bot(discord: DiscordSimulator, program: Program, shards: Shards) -> DiscordApp:
    return DiscordApp(
        token=discord.token, receive=program.receive, cursors=program, api_url=discord.api_url, shards=shards
    )


def two_programs() -> tuple[Program, Program]:
    """Two processes around one database."""
    first = Program()
    return first, Program(claimed=first.claimed, cursor_of=first.cursor_of)


def places(discord: DiscordSimulator) -> tuple[str, str, str]:
    """A channel on shard 0, one on shard 1, and one of direct messages."""
    discord.add_guild("South", people=("alice",), shard=1)
    here, there = (one.channel_id for one in discord.view().channels if not one.is_direct)
    return here, there, next(one.channel_id for one in discord.view().channels if one.is_direct)


def texts(program: Program) -> list[str]:
    return [one.text for one in program.received if isinstance(one, IncomingMessage)]


async def noted(program: Program, channel_id: str) -> None:
    """The process has begun to listen, and to remember how far."""
    await until(lambda: any(scope.endswith(f"/{channel_id}") for scope in program.cursor_of))


async def test_each_process_hears_what_belongs_to_its_shards(discord, connect) -> None:
    here, there, direct = places(discord)
    first, second = two_programs()
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
    first, second = two_programs()
    await connect(first, FIRST)
    away = await connect(second, SECOND)
    thread = await discord.say("alice", there, "@threadhand south")
    await until(lambda: second.received)
    await until(lambda: any(one.threads for one in discord.view().channels))
    await noted(second, there)
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
    """Schedules and hooks are carried out by any process, whichever has the forum in its cache."""
    discord.settings.bot_permissions |= MANAGE_THREADS
    discord.add_guild("South", people=("alice",), shard=1)
    forum = discord.add_channel("reports", FORUM)
    app = await connect(two_programs()[0], shards)
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
    app = bot(discord, program, Shards(2, 2, 2))
    with pytest.raises(ConfigurationError, match="THREADHAND_DISCORD_SHARDS"):
        await app.start()
