"""Where people may call the agent in Discord: it works there, or says why it does not."""

from itertools import product

import pytest

from bots.demo.thread_reader import text_of
from simulator.discord.world import ANNOUNCEMENTS, FORUM, PRIVATE_THREAD, THREAD
from simulator.view import SeenChannel
from tests.chaos.harness import PERSON, Stage, staged
from tests.integration.e2e.staging import discord_of

SCENARIO = """
conversations:
  - name: count
    when: {user: {contains: "Count"}}
    steps: [{text: "Seven rows."}]
"""


def seen(stage: Stage, channel_id: str) -> SeenChannel:
    return next(one for one in stage.view().channels if one.channel_id == channel_id)


async def new_channel(stage: Stage, kind: int) -> str:
    channel_id = discord_of(stage).add_channel("meeting", kind).channel_id
    await discord_of(stage).say("bob", channel_id, "hello") if kind != FORUM else None
    return channel_id


async def run(stage: Stage, channel_id: str, thread_id: str | None = None) -> None:
    await stage.platform.command(PERSON, channel_id, "agent run", {"prompt": "Count the rows."}, thread_id=thread_id)


"""Whether interactions hold the object of their channel, which Discord calls optional, or only its id."""


@pytest.mark.parametrize(
    ("place", "is_channel_named"),
    [
        ("forum", True),
        ("private", False),
        *product(("channel", "announcements"), (True, False)),
        ("forum", False),
        ("private", True),
    ],
)
async def test_a_run_works_where_there_are_threads(place: str, is_channel_named: bool) -> None:
    async with staged("discord", SCENARIO) as stage:
        discord = discord_of(stage)
        discord.settings.names_interaction_channels = is_channel_named
        stage.program.start()
        await stage.connected()
        channel_id, thread_id = stage.channel_id, None
        match place:
            case "announcements":
                channel_id = await new_channel(stage, ANNOUNCEMENTS)
            case "forum":
                channel_id = await new_channel(stage, FORUM)
                thread_id = await discord.open_thread("alice", channel_id, "an idea", THREAD)
            case "private":
                thread_id = await discord.open_thread("alice", channel_id, "idea", PRIVATE_THREAD)
            case _:
                pass
        await run(stage, channel_id, thread_id)
        await stage.settled(1)
        (thread,) = seen(stage, channel_id).threads
        assert thread_id in (None, thread.thread_id)
        assert "Seven rows." in [text_of(one).partition("\n")[0] for one in thread.messages]
        assert stage.runs() == ["completed"]
