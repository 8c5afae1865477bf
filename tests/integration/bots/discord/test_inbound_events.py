"""Messages, edits, deletions and reactions, from a person in Discord to an inbound fact."""

import asyncio

import pytest

from bots.inbound import retry_buffer
from bots.inbound.actions import Outcome
from core.domain.actions import IncomingMessage, MessageDeleted, MessageEdited, StopRequested
from core.domain.errors import StorageUnavailable
from simulator.discord.rules.permissions import READ_HISTORY
from tests.support.narrow import require_type


async def test_an_ignored_mention_opens_no_thread_and_its_notice_pings_nobody(world) -> None:
    async def answer(inbound):
        return Outcome(notice="No, @everyone.", is_ignored=True)

    world.program.answer = answer
    await world.say("@threadhand do it")
    await world.until(lambda: len(world.general.messages) == 2)
    assert world.general.messages[-1].elements[0].text == "No, @\u200deveryone."
    assert world.general.threads == ()


async def test_a_long_notice_takes_several_messages(world) -> None:
    async def answer(inbound):
        return Outcome(notice="\n".join(f"- `s{number:02}` {'x' * 200}" for number in range(20)))

    world.program.answer = answer
    await world.say("@threadhand schedules")
    await world.until(lambda: "s19" in str(world.general.messages[-1].elements))
    assert [one.is_bot for one in world.general.messages] == [False, True, True, True]


async def test_an_edit_that_adds_the_mention_is_a_request_and_one_that_keeps_it_is_not(world) -> None:
    channel_id = world.general.channel_id
    message_id = await world.say("threadhand count the lines")
    await world.until(lambda: world.app.client.cached_messages)
    await asyncio.sleep(0)  # the handler of the new message reads it before the edit changes it
    await world.discord.edit("alice", channel_id, message_id, "@threadhand count the lines")
    edit, request = await world.received(2) and world.program.received
    assert isinstance(edit, MessageEdited)
    assert isinstance(request, IncomingMessage)
    assert (request.text, request.message_ref) == ("count the lines", message_id)
    await world.until(lambda: world.general.threads)
    assert world.thread.thread_id == message_id
    await world.discord.edit("alice", channel_id, message_id, "@threadhand count the words")
    assert isinstance(await world.received(3), MessageEdited)


async def test_a_cross_on_the_request_wishes_a_stop_and_other_reactions_do_not(world) -> None:
    message_id = await world.say("@threadhand count the lines")
    await world.received()
    await world.discord.react("bob", world.general.channel_id, message_id, "🎉")
    await world.discord.react("bob", world.general.channel_id, message_id, "❌")
    inbound = require_type(await world.received(2), StopRequested)
    assert (inbound.message_ref, inbound.person.name) == (message_id, "Bob")
    assert inbound.address.thread_key == message_id


@pytest.mark.parametrize("way", ["permission", "as many threads as there may be"])
async def test_the_run_of_a_thread_that_discord_refuses_is_stopped(world, way: str) -> None:
    if way == "permission":
        world.discord.settings.missing_permissions.add("POST */threads")
    else:
        world.discord.settings.threads_max = 0
    await world.say("@threadhand hello")
    assert require_type(await world.received(2), StopRequested).address == world.program.received[0].address


async def test_ids_are_written_as_people_read_them(world) -> None:
    await world.say("@threadhand see <:party:123> in <#99> <@&98>")
    assert (await world.received()).text == "see :party: in #channel @role"


FAILURES = 3


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_buffer, "RETRY_SECONDS", 0.02)


async def test_deletions(world) -> None:
    channel_id, message_id = world.general.channel_id, (await world.begin()).thread_key
    others = [await world.say(text, thread_id=world.thread.thread_id) for text in ("more", "and more")]
    await world.received(3)
    world.program.failures = FAILURES
    await world.discord.delete("alice", channel_id, message_id)
    world.discord.delete_messages(world.thread.thread_id, others)
    await world.received(6)
    deletions = world.program.received[3:]
    assert {type(one) for one in deletions} == {MessageDeleted}
    assert {one.message_ref for one in deletions} == {message_id, *others}


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


async def test_a_message_that_cannot_be_handled_does_not_close_its_channel(world) -> None:
    async def answer(inbound):
        if inbound.text == "one":
            raise ValueError("a bug")
        return Outcome(run_id="run")

    world.program.answer = answer
    await world.say("@threadhand one")
    await world.say("@threadhand two")
    assert (await world.received()).text == "two"


async def test_a_message_that_could_not_be_stored_is_told_again_in_its_order(world) -> None:
    world.program.failures = 1
    await world.say("@threadhand one")
    await world.say("@threadhand two")
    await world.until(lambda: len(world.program.received) == 2)
    assert [one.text for one in world.program.received] == ["one", "two"]
