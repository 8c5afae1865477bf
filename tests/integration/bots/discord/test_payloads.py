"""Events of the gateway that say less, or something else, than discord.py expects."""

import time

import pytest

from core.domain.actions import IncomingMessage, MessageEdited
from core.domain.json import JsonObject
from simulator.discord.world import Event
from tests.support.narrow import require_type


def tell(world, name: str, payload: JsonObject) -> None:
    world.discord.world.publish(Event(name=name, payload=payload))


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("SOMETHING_NEW", {"a": 1}),
        ("INTERACTION_CREATE", {"id": "1", "type": 99, "token": "t", "version": 1}),
        ("MESSAGE_UPDATE", {"id": "77", "channel_id": "1", "embeds": []}),
        ("MESSAGE_UPDATE", {}),
        ("MESSAGE_CREATE", {"id": 7}),
        ("MESSAGE_DELETE", {}),
        ("MESSAGE_REACTION_ADD", {"user_id": "1"}),
        ("THREAD_UPDATE", {"id": "1"}),
        ("GUILD_UPDATE", {"id": "1"}),
        ("CHANNEL_UPDATE", {}),
    ],
)
async def test_an_event_that_cannot_be_read_does_not_end_the_connection(world, name: str, payload: JsonObject):
    before = world.calls("GET", "/users/@me")
    tell(world, name, payload)
    await world.say("@threadhand still there?")
    assert (await world.received()).text == "still there?"
    assert world.calls("GET", "/users/@me") == before
    assert await world.app.is_connected()


async def test_an_edit_that_is_told_in_part_is_asked_for_whole(world):
    message_id = await world.say("@threadhand count the lines")
    assert isinstance(await world.received(), IncomingMessage)
    channel_id = world.general.channel_id
    stored = world.discord.world.channels[channel_id].messages[message_id]
    stored.content, stored.edited_at = "@threadhand count the words", time.time()
    partial = {"id": message_id, "channel_id": channel_id, "content": "count the words"}
    tell(world, "MESSAGE_UPDATE", {**partial, "guild_id": next(iter(world.discord.world.guilds))})
    edited = require_type(await world.received(2), MessageEdited)
    assert edited.text.endswith("count the words")
