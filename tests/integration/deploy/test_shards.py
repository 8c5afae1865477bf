"""Two bots that divide the shards of one Discord: each server is answered once, also what one of them missed."""

from bots.demo.thread_reader import messages_of, text_of
from simulator.discord.server import DiscordSimulator
from tests.chaos.cluster import NO_WORKER, Cluster, open_cluster
from tests.chaos.harness import PERSON
from tests.support.narrow import require_type


async def test_each_server_is_answered_once_also_after_its_bot_was_down(postgresql_url: str, redis_url: str) -> None:
    async with open_cluster("discord", postgresql_url, redis_url, bots=2, workers=1) as cluster:
        platform = require_type(cluster.stage.platform, DiscordSimulator)
        platform.add_guild("South", people=(PERSON,), shard=1)
        here, there = (one.channel_id for one in cluster.stage.view().channels if not one.is_direct)
        for number, one in enumerate(cluster.bots):
            one.change(discord_shards=f"{number}/2")
        await cluster.start()
        await listens(cluster, here)
        await listens(cluster, there)
        await is_answered(cluster, await says(cluster, here, "a1"), "a1")
        await is_answered(cluster, await says(cluster, there, "a2"), "a2")
        cluster.bots[1].kill()
        missed = await says(cluster, there, "a3")
        await is_answered(cluster, await says(cluster, here, "a4"), "a4")
        assert answers(cluster, missed) == []
        cluster.bots[1].start(arguments=NO_WORKER)
        await is_answered(cluster, missed, "a3")
        assert await cluster.runs() == ["completed"] * 4


async def listens(cluster: Cluster, channel_id: str) -> None:
    """A bot is connected to the shard of the channel, and has noted how far it is heard."""
    scope = f"SELECT scope FROM inbound_cursor WHERE scope LIKE '%/{channel_id}'"  # noqa: S608 - a test's own
    await cluster.until_rows(scope, f"channel {channel_id} is listened to", seconds=90)


async def says(cluster: Cluster, channel_id: str, token: str) -> str:
    """The thread of a mention."""
    bot = cluster.stage.view().bot_name
    return await cluster.stage.platform.say(PERSON, channel_id, f"@{bot} Hello, token {token}")


async def is_answered(cluster: Cluster, thread_id: str, token: str) -> None:
    await cluster.until(
        lambda: any("Done**" in one or "✅" in one for one in answers(cluster, thread_id)),
        f"{token} is told to its end",
        seconds=90,
    )
    assert sum(f"Done {token}." in one for one in answers(cluster, thread_id)) == 1, cluster.report()


def answers(cluster: Cluster, thread_id: str) -> list[str]:
    ours = [one for one in messages_of(cluster.stage.view(), thread_id) if one.is_bot]
    return [text_of(one) for one in ours]
