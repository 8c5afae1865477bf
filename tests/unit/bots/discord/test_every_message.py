"""Every type of message in Discord's documentation: what people say is kept, and nothing else starts a run."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

with warnings.catch_warnings():
    # discord.py imports audioop for voice, which Python has deprecated
    warnings.filterwarnings("ignore", "'audioop' is deprecated", DeprecationWarning)
    import discord

from bots.discord.address import ChannelLocation
from bots.discord.gateway.malformed_payloads import parse_without_bad_parts
from bots.discord.gateway.parse import parse_edit, parse_message
from bots.inbound.actions import CommandCalled
from core.domain.actions import IncomingMessage, MessageEdited, StopRequested
from tests.support.narrow import require_type

CHANNEL = ChannelLocation(kind="channel", channel_id=3, guild_id=1)
THREAD = ChannelLocation(kind="thread", channel_id=4, guild_id=1, parent_id=3)
DIRECT = ChannelLocation(kind="direct", channel_id=5)
SENT = "2026-11-25T10:00:00+00:00"
Payload = dict[str, Any]


def person(user_id: int, name: str, **more: object) -> Payload:
    return {"id": str(user_id), "username": name, "discriminator": "0", "avatar": None, **more}


BOT, ALICE, BOB = person(9, "threadhand", bot=True), person(6, "alice"), person(7, "bob")
ALERTS = person(8, "Alerts", bot=True)
EMBED: Payload = {"type": "rich", "title": "Disk", "description": "97 %", "fields": []}
LAYOUT: Payload = {"type": 17, "components": [{"type": 10, "content": "disk is full"}]}
FILE: Payload = {"id": "70", "filename": "a.ogg", "size": 3, "url": "https://x/a", "proxy_url": "x"}
POLL: Payload = {
    "question": {"text": "When?"},
    "answers": [{"answer_id": 1, "poll_media": {"text": "Friday"}}],
    "expiry": "2026-11-26T10:00:00+00:00",
    "allow_multiselect": False,
    "layout_type": 1,
}


def said(content: str = "<@9> count", kind: int = 0, **more: object) -> Payload:
    mentions = [one for one in (BOT, BOB) if f"<@{one['id']}>" in content]
    base: Payload = {"id": "100", "channel_id": "3", "guild_id": "1", "author": ALICE}
    base |= {"content": content, "type": kind, "timestamp": SENT, "edited_timestamp": None}
    base |= {"tts": False, "mention_everyone": False, "mentions": mentions, "mention_roles": []}
    base |= {"attachments": [], "embeds": [], "components": [], "pinned": False, "flags": 0}
    return {**base, **more}


def forwarded(**parts: object) -> Payload:
    inner = {"type": 0, "content": "", "timestamp": SENT, "flags": 0, "mentions": []}
    inner |= {"edited_timestamp": None, "attachments": [], "embeds": [], "components": [], **parts}
    reference = {"type": 1, "channel_id": "3", "message_id": "50", "guild_id": "1"}
    return {"message_reference": reference, "message_snapshots": [{"message": inner}]}


def reply_to(author: Payload, content: str = "see this", **more: object) -> Payload:
    reference = {"type": 0, "channel_id": "3", "message_id": "50", "guild_id": "1"}
    quoted = said(content, author=author, id="50", **more)
    return {"kind": 19, "message_reference": reference, "referenced_message": quoted}


@pytest.fixture
async def state() -> Any:
    state: Any = discord.Client(intents=discord.Intents(guilds=True))._connection
    state.user = discord.ClientUser(state=state, data=BOT)
    channel = {"id": "3", "type": 0, "name": "general", "position": 0, "permission_overwrites": []}
    guild = {"id": "1", "name": "g", "owner_id": "6", "roles": [], "channels": [channel]}
    state._add_guild(discord.Guild(state=state, data=guild))
    return state


def message(state: Any, payload: Payload) -> discord.Message:
    channel = state._get_guild(1).get_channel(3)
    return discord.Message(state=state, channel=channel, data=payload)


SAID: dict[str, tuple[Payload, str]] = {
    "plain": (said(), "count"),
    "reply to a person": (
        said(**reply_to(BOB)),
        "count\n\n[It replies to a message of bob (7), who did not say it to you:]\n> see this",
    ),
    "reply to a message that is gone": (said(**reply_to(BOB) | {"referenced_message": None}), "count"),
    "reply to the bot": (said("go on", **reply_to(BOT) | {"mentions": [BOT]}), "go on"),
    "voice message": (said("<@9>", attachments=[FILE], flags=1 << 13), ""),
    "silent": (said(flags=1 << 12), "count"),
    "poll": (said(poll=POLL), "count\nPoll: When?\n- Friday"),
    "sticker": (said("<@9>", sticker_items=[{"id": "1", "name": "x", "format_type": 1}]), "[Sticker: x]"),
    "forward": (said(**forwarded(content="one\ntwo")), "count\n\nForwarded message:\n> one\n> two"),
    "forwarded alert": (said(**forwarded(embeds=[EMBED])), "count\n\nForwarded message:\n> Disk\n> 97 %"),
    "forwarded layout": (said(**forwarded(components=[LAYOUT])), "count\n\nForwarded message:\n> disk is full"),
    "app": (said(author=ALERTS, application_id="80"), "count"),
    "webhook": (said(author=ALERTS, webhook_id="80"), "count"),
}
TYPES = [kind for kind in (*range(48), 99) if kind not in (0, 19)]


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("location", [CHANNEL, THREAD])
async def test_what_is_said_to_the_agent_is_kept(state: Any, name: str, location: ChannelLocation):
    payload, text = SAID[name]
    parsed = require_type(parse_message(message(state, payload), location, 9), IncomingMessage)
    assert (parsed.text, parsed.is_addressed) == (text, True)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("location", [CHANNEL, THREAD, DIRECT])
async def test_what_discord_or_an_app_writes_starts_nothing(state: Any, kind: int, location: ChannelLocation):
    for author in (ALICE, ALERTS, BOT):
        notice = message(state, said(kind=kind, author=author))
        assert parse_message(notice, location, 9) is None
        assert parse_edit(message(state, said(kind=kind, edited_timestamp=SENT)), location, 9) is None


@pytest.mark.parametrize("around", ["\u200f", "\u200b", "\u2068", "\ufeff", "\u200e ", "\xa0"])
async def test_invisible_characters_around_words_change_nothing(state: Any, around: str):
    assert isinstance(parse_message(message(state, said(f"{around}stop{around}")), THREAD, 9), StopRequested)
    assert isinstance(parse_message(message(state, said(f"<@9>{around}status{around}")), CHANNEL, 9), CommandCalled)
    nothing = require_type(parse_message(message(state, said(f"<@9> {around}")), CHANNEL, 9), IncomingMessage)
    assert nothing.text == ""


@pytest.mark.parametrize("name", [one for one in SAID if one not in ("app", "webhook", "reply to the bot")])
async def test_an_edit_says_all_that_the_message_says(state: Any, name: str):
    payload, text = SAID[name]
    parsed = require_type(parse_edit(message(state, {**payload, "edited_timestamp": SENT}), THREAD, 9), MessageEdited)
    assert parsed.text == text


def variants(payload: Payload) -> Iterator[Payload]:
    """Yields the payload with one optional field missing, null or empty."""
    for key in ("flags", "components", "message_reference", "mention_roles", "referenced_message"):
        yield {name: one for name, one in payload.items() if name != key}
    for key in ("referenced_message", "application_id", "webhook_id", "edited_timestamp"):
        yield {**payload, key: None}
    for key in ("message_snapshots", "sticker_items", "mentions", "attachments"):
        yield {**payload, key: []}


async def test_no_missing_field_breaks_the_parser(state: Any):
    for payload, _text in SAID.values():
        for changed in variants(payload):
            parsed = message(state, changed)
            for location in (CHANNEL, THREAD, DIRECT):
                parse_message(parsed, location, 9)
                parse_edit(parsed, location, 9)


ODD = (None, 5, -1.5, "x", [None], ["x"], [{}], {}, {"id": "x"}, [{"id": None}], True)


@pytest.mark.parametrize("name", sorted(SAID))
async def test_a_message_with_an_odd_part_keeps_its_words(state: Any, name: str):
    payload = SAID[name][0]
    channel = state._get_guild(1).get_channel(3)
    whole = {"poll": POLL, "thread": {}, "call": {}, "interaction": {}, **payload}
    for key in whole.keys() - {"id", "channel_id", "guild_id"}:
        for odd in ODD:
            parsed = parse_without_bad_parts(state, channel=channel, data={**whole, key: odd})
            assert parsed.id == 100
            if key != "content":
                assert parsed.content == payload["content"]


@pytest.mark.parametrize(
    ("text", "is_to_others"), [("<@7> look", True), ("Hello <@7>", True), ("Thanks <@7>!", True), ("tell <@7>", False)]
)
async def test_a_message_that_begins_with_another_mention_is_to_others(
    state: Any, text: str, is_to_others: bool
) -> None:
    parsed = require_type(parse_message(message(state, said(text)), THREAD, 9), IncomingMessage)
    assert parsed.is_to_others == is_to_others
