"""Whatever a body holds, a call ends with an answer of Discord's own: never with a crash of the simulator."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.discord import DiscordSettings
from simulator.discord.initial_world import build_world
from simulator.discord.json_reading import Json
from simulator.discord.rest import channels, commands, messages, threads
from simulator.discord.rest.call import Act, Call
from simulator.discord.rest.errors import Refused
from simulator.discord.settings import EVERYTHING
from simulator.discord.world import COMPONENTS_V2, Message, World

KEYS = (
    *("content", "embeds", "components", "flags", "nonce", "enforce_nonce", "allowed_mentions"),
    *("parse", "users", "roles", "type", "message_reference", "message_id", "attachments", "id"),
    *("filename", "name", "description", "options", "choices", "value", "custom_id", "label"),
    *("style", "url", "media", "file", "items", "accessory", "emoji", "title", "fields", "text"),
    *("footer", "auto_archive_duration", "archived", "locked", "required"),
)
NUMBERS = st.sampled_from([0, 1, 2, 3, 9, 10, 11, 12, 13, 14, 17, 18, COMPONENTS_V2, -1, 1 << 70])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)
BODIES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)


def made_world() -> World:
    world = build_world(
        token="t",
        people=("alice",),
        channels=("general",),
        bot_name="bot",
        guild_name="G",
        settings=DiscordSettings(bot_permissions=EVERYTHING),
    )
    world.add(Message(message_id="7", channel_id="4001", author=world.bot, content="x"))
    return world


ACTS = (
    messages.create_message,
    messages.edit_message,
    threads.start_from_message,
    threads.start_without_message,
    channels.edit_channel,
    commands.create_command,
)


def status_of(act: Act, call: Call) -> int:
    try:
        return act(made_world(), call).status
    except Refused as refused:
        return refused.status


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@settings(deadline=None)
@given(body=BODIES)
def test_nonsense_is_answered(act: Act, body: Json) -> None:
    arguments = {"channel": "4001", "message": "7", "application": "1001"}
    call = Call(method="POST", path="/", arguments=arguments, query={}, body=body)
    assert status_of(act, call) in (200, 201, 400)


@settings(deadline=None)
@given(body=VALUES)
def test_a_list_of_nonsense_commands_is_answered(body: object) -> None:
    call = Call(method="PUT", path="/", arguments={"application": "1001"}, query={}, body=body)
    assert status_of(commands.replace_commands, call) in (200, 400)
