"""What Discord sends only once is not lost while the database or Discord's API is away."""

import pytest

from bots.inbound import retry_buffer
from core.domain.actions import IncomingMessage, MessageDeleted, StopRequested
from core.domain.errors import StorageUnavailable
from simulator.discord.rules.permissions import READ_HISTORY

FAILURES = 3


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_buffer, "RETRY_SECONDS", 0.02)


async def asked(world) -> tuple[str, str]:
    """A thread and the message under which it is."""
    message_id = await world.say("@threadhand count the lines")
    await world.received()
    await world.until(lambda: world.general.threads)
    return world.general.channel_id, message_id


async def test_deletions(world) -> None:
    channel_id, message_id = await asked(world)
    other = await world.say("more", thread_id=world.thread.thread_id)
    await world.received(2)
    world.program.failures = FAILURES
    await world.discord.delete("alice", channel_id, message_id)
    world.discord.delete_messages(world.thread.thread_id, [other])
    await world.received(4)
    deletions = world.program.received[2:]
    assert [type(one) for one in deletions] == [MessageDeleted, MessageDeleted]
    assert {one.message_ref for one in deletions} == {message_id, other}


async def test_a_cross(world) -> None:
    channel_id, message_id = await asked(world)
    world.program.failures = FAILURES
    await world.discord.react("bob", channel_id, message_id, "❌")
    assert isinstance(await world.received(2), StopRequested)


async def test_a_message_in_a_channel_whose_history_the_bot_may_not_read(world) -> None:
    world.discord.allow("4001", denied=READ_HISTORY)
    world.program.failures = FAILURES
    await world.say("@threadhand count the lines")
    assert isinstance(await world.received(), IncomingMessage)


async def test_an_uninstall(world) -> None:
    left: list[str] = []

    async def leave(_platform: str, workspace_id: str) -> None:
        left.append(workspace_id)
        if len(left) < FAILURES:
            raise StorageUnavailable("it is away")

    world.app.client.on_uninstall = leave
    guild_id = world.discord.world.home.guild_id
    guild = world.app.client.get_guild(int(guild_id))
    await world.app.client.on_guild_remove(guild)
    await world.until(lambda: len(left) == FAILURES)
