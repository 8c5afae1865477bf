"""Two bots that divide the shards of one Discord: each server is answered once, also what one of them missed."""

from collections.abc import Iterator

import pytest

from bots.demo.thread_reader import messages_of, text_of
from simulator.discord.server import DiscordSimulator
from tests.chaos.crew import NO_WORKER, Crew, crew
from tests.chaos.harness import PERSON
from tests.servers import redis


@pytest.fixture
def redis_url() -> Iterator[str]:
    with redis() as url:
        yield url


@pytest.mark.slow
async def test_each_server_is_answered_once_also_after_its_bot_was_down(
    postgresql_url: str,
    redis_url: str,
) -> None:
    async with crew("discord", postgresql_url, redis_url, bots=2, workers=1) as told:
        platform = told.stage.platform
        assert isinstance(platform, DiscordSimulator)
        platform.add_guild("South", people=(PERSON,), shard=1)
        here, there = (one.channel_id for one in told.stage.view().channels if not one.is_direct)
        for number, one in enumerate(told.bots):
            one.change(discord_shards=f"{number}/2")
        await told.start()
        await listens(told, here)
        await listens(told, there)
        await is_answered(told, await says(told, here, "a1"), "a1")
        await is_answered(told, await says(told, there, "a2"), "a2")

        told.bots[1].kill()
        missed = await says(told, there, "a3")
        await is_answered(told, await says(told, here, "a4"), "a4")
        assert answers(told, missed) == []

        told.bots[1].start(arguments=NO_WORKER)
        await is_answered(told, missed, "a3")
        assert await told.runs() == ["completed"] * 4


async def listens(told: Crew, channel_id: str) -> None:
    """A bot is connected to the shard of the channel, and has noted how far it is heard."""
    scope = f"SELECT scope FROM inbound_cursor WHERE scope LIKE '%/{channel_id}'"  # noqa: S608 - a test's own
    await told.until_rows(scope, f"channel {channel_id} is listened to", seconds=90)


async def says(told: Crew, channel_id: str, token: str) -> str:
    """The thread of a mention."""
    bot = told.stage.view().bot_name
    return await told.stage.platform.say(PERSON, channel_id, f"@{bot} Hello, token {token}")


async def is_answered(told: Crew, thread_id: str, token: str) -> None:
    await told.until(
        lambda: any("Done**" in one or "✅" in one for one in answers(told, thread_id)),
        f"{token} is told to its end",
        seconds=90,
    )
    assert sum(f"Done {token}." in one for one in answers(told, thread_id)) == 1, told.report()


def answers(told: Crew, thread_id: str) -> list[str]:
    ours = [one for one in messages_of(told.stage.view(), thread_id) if one.is_bot]
    return [text_of(one) for one in ours]
