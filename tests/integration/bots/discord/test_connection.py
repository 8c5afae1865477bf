"""Logging in, staying connected, and reading what was missed."""

import asyncio
import threading

import pytest
from discord.gateway import KeepAliveHandler

from bots.discord.gateway import backfill
from core.domain.errors import ConfigurationError
from core.tasks import spawn
from tests.integration.bots.discord.conftest import bot
from tests.support.waiting import until


def heartbeats() -> list[KeepAliveHandler]:
    here = asyncio.get_running_loop()
    return [one for one in threading.enumerate() if isinstance(one, KeepAliveHandler) and one.ws.loop is here]


def all_ended(threads: list[KeepAliveHandler]) -> bool:
    for one in threads:
        one.join(2)
    return not any(one.is_alive() for one in threads)


async def test_without_the_content_intent_mentions_and_commands_are_served(discord, program, connect, caplog) -> None:
    discord.settings.has_message_content_intent = False
    world = await connect(program)
    told = [one.message for one in caplog.records if "Message Content Intent" in one.message]
    assert len(told) == 1
    thread_id = await world.say("@threadhand hello")
    await world.received()
    await world.until(lambda: world.general.threads)
    await world.discord.say("alice", world.direct.channel_id, "in private")
    assert (await world.received(2)).text == "in private"
    await world.discord.command("alice", world.general.channel_id, "status", {})
    assert (await world.received(3)).name == "status"
    for text in ("one", "two"):
        await world.say(text, thread_id=thread_id)
    await world.say("@threadhand three", thread_id=thread_id)
    assert (await world.received(4)).text == "three"
    await world.until(lambda: any(one.is_bot for one in world.thread.messages))
    (notice,) = [one for one in world.thread.messages if one.is_bot]
    assert "only messages that mention me" in notice.elements[0].text


async def test_what_was_written_while_the_program_was_away_is_read_in_order(world, connect) -> None:
    await world.say("@threadhand one")
    await world.until(lambda: world.general.threads)
    thread_id = world.thread.thread_id
    await world.discord.say("alice", world.direct.channel_id, "direct one")
    await world.received(2)
    await world.app.close()
    for text in ("two", "three", "four"):
        await world.say(text, thread_id=thread_id)
    await world.discord.say("alice", world.direct.channel_id, "direct two")
    await world.say("@threadhand five")
    await world.say("nobody is meant")
    again = await connect(world.program)
    await again.until(lambda: len(again.program.received) >= 7)
    texts = [one.text for one in again.program.received]
    assert [t for t in texts if t in ("two", "three", "four")] == ["two", "three", "four"]
    assert sorted(texts[2:]) == sorted(["two", "three", "four", "direct two", "five"])
    await again.until(lambda: len(again.general.threads) == 2)
    await again.app.close()
    await connect(world.program)
    await asyncio.sleep(0.2)
    assert len(world.program.received) == 7


async def test_what_is_too_old_is_not_read(world, connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "MISSED_SECONDS_MAX", 0)
    await world.app.close()
    await world.say("@threadhand delete the staging bucket today")
    await asyncio.sleep(0.01)
    again = await connect(world.program)
    await again.say("@threadhand hello")
    assert (await again.received()).text == "hello"
    assert len(again.program.received) == 1


async def test_a_message_handled_before_a_crash_gets_its_thread_afterwards(world, connect) -> None:
    await world.app.close()
    message_id = await world.say("@threadhand count the lines")
    world.program.claimed.add(f"discord:{message_id}")
    again = await connect(world.program)
    await again.until(lambda: again.general.threads)
    assert again.thread.title == "count the lines"
    assert again.program.received == []


async def test_a_gateway_that_talks_nonsense_is_connected_to_again(world) -> None:
    await world.say("@threadhand one")
    await world.received()
    world.discord.gateway.say_nonsense()
    await world.say("@threadhand two")
    await world.received(2)
    assert [one.text for one in world.program.received] == ["one", "two"]
    await world.until(world.app.is_connected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"token": "wrong"}, "THREADHAND_DISCORD_TOKEN"), ({"api_url": "http://127.0.0.1:1"}, "cannot be reached")],
)
async def test_who_cannot_sign_in_is_told_in_one_sentence(discord, program, options, sentence) -> None:
    app = bot(discord, program, **options)
    with pytest.raises(ConfigurationError, match=sentence):
        await app.start()
    await app.close()


async def test_a_start_that_is_given_up_between_two_shards_leaves_no_heart_beating(discord, program) -> None:
    discord.settings.shards = 2  # five seconds lie between their identifications
    app = bot(discord, program)
    starting = spawn(app.start(), name="start")
    await until(lambda: len(heartbeats()) >= 2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await asyncio.to_thread(all_ended, heartbeats())
