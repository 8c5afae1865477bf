"""Makes discord.py accept payloads that it cannot parse.

An exception in a parser of gateway events would end the connection. An exception in the history would keep the rest of
a channel's missed messages from being read. With this module, a message loses only the parts that cannot be parsed."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import discord

from bots.discord.rest.client import RestClient, get_objects
from core.domain.errors import SurfaceError
from core.domain.json import JsonObject
from core.tasks import spawn

log = logging.getLogger(__name__)

SESSION_EVENTS = frozenset({"READY", "RESUMED"})
"""Events that start a session. Errors in their parsers are not suppressed, because there is no session without them."""
MESSAGE_EVENTS = frozenset({"MESSAGE_CREATE", "MESSAGE_UPDATE"})
_Parse = Callable[[JsonObject], None]
_NEEDED: JsonObject = {"id": "0", "type": 0, "content": ""}
"""The fields that discord.py needs in each message, and the defaults for those that are missing."""
_PERSON: JsonObject = {"username": "somebody", "discriminator": "0", "avatar": None}


def tolerate_malformed_payloads(client: discord.Client, rest: RestClient) -> None:
    """Makes the client parse messages, whether it receives or fetches them, without the parts that cannot be parsed,
    and skip other events that it cannot parse. If a received message is incomplete, it is fetched."""
    state = client._connection  # noqa: SLF001 - it parses all payloads # pyright: ignore[reportPrivateUsage]
    for name, parse in list(state.parsers.items()):
        if name in MESSAGE_EVENTS:
            state.parsers[name] = partial(_parse_or_fetch, state, rest, name, parse)
        elif name not in SESSION_EVENTS:
            state.parsers[name] = partial(_parse_or_skip, name, parse)
    state.parsers["INTERACTION_CREATE"] = partial(
        _parse_with_channel, client, rest, state.parsers["INTERACTION_CREATE"]
    )
    state.create_message = partial(parse_without_bad_parts, state)


def parse_without_bad_parts(state: Any, *, channel: Any, data: Any) -> discord.Message:
    """Returns the message without the parts that cannot be parsed. Logs their names."""
    whole: Any = _completed(data)
    try:
        return discord.Message(state=state, channel=channel, data=whole)
    except Exception:  # for a payload of an unexpected shape, discord.py may raise anything
        parts: Any = drop_unparsable_parts(state, channel, whole)
        return discord.Message(state=state, channel=channel, data=parts)


def drop_unparsable_parts(state: Any, channel: Any, payload: JsonObject) -> JsonObject:
    """Returns a message's payload without the parts that discord.py cannot parse. Tries each part by itself."""
    kept: JsonObject = {**_NEEDED, **{key: payload[key] for key in _NEEDED if payload.get(key) is not None}}
    lost: list[str] = []
    for key in payload.keys() - kept.keys():
        tried: Any = {**kept, key: payload[key]}
        try:
            discord.Message(state=state, channel=channel, data=tried)
            kept = tried
        except Exception as error:  # as above
            lost.append(f"{key} ({type(error).__name__})")
    log.warning("discord: message %s is read without %s", kept["id"], ", ".join(sorted(lost)) or "its type")
    return kept


def _completed(message: JsonObject) -> JsonObject:
    """Adds fields that discord.py requires and Discord may leave out, to the message and to the message that it replies
    to: the end and the question of a poll, and fields of the author and the mentioned users."""
    whole = {**message}
    for author in get_objects([message.get("author")]):
        whole["author"] = {**_PERSON, **author}
    if "mentions" in message:
        whole["mentions"] = [{**_PERSON, **person} for person in get_objects(message["mentions"])]
    for poll in get_objects([message.get("poll")]):
        question = get_objects([poll.get("question")])
        whole["poll"] = {
            **poll,
            "question": {"text": "", **(question[0] if question else {})},
            "expiry": poll.get("expiry") or message.get("timestamp"),
        }
    for quoted in get_objects([message.get("referenced_message")]):
        whole["referenced_message"] = _completed(quoted)
    return whole


def _parse_or_skip(name: str, parse: _Parse, payload: JsonObject) -> None:
    try:
        parse(payload)
    except Exception as error:  # as above
        log.warning("discord: a %s cannot be parsed: %s", name, type(error).__name__)


def _parse_or_fetch(state: Any, rest: RestClient, name: str, parse: _Parse, payload: JsonObject) -> None:
    try:
        parse(_completed(payload))
    except Exception as error:  # as above
        log.info("discord: a %s is incomplete (%s); fetching the message", name, type(error).__name__)
        spawn(_fetch_and_parse(state, rest, name, parse, payload), name="discord message")


async def _fetch_and_parse(state: Any, rest: RestClient, name: str, parse: _Parse, payload: JsonObject) -> None:
    channel_id, message_id = payload.get("channel_id"), payload.get("id")
    if not (isinstance(channel_id, str) and isinstance(message_id, str)):
        return
    try:
        found = await rest.call(
            "GET", "/channels/{channel_id}/messages/{message_id}", channel_id=channel_id, message_id=message_id
        )
    except SurfaceError as error:
        log.warning("discord: the message of a %s cannot be fetched: %s", name, error)
        found = None
    if not isinstance(found, dict) and not {"author", "content"} <= payload.keys():
        return
    whole = _completed({**payload, **found} if isinstance(found, dict) else payload)
    try:
        parse(whole)
    except Exception:  # as above
        channel, _ = state._get_guild_channel(whole)  # noqa: SLF001 - as its parsers do
        _parse_or_skip(name, parse, drop_unparsable_parts(state, channel, whole))


def _parse_with_channel(client: discord.Client, rest: RestClient, parse: _Parse, payload: JsonObject) -> None:
    """Adds the channel to an interaction that contains only its id, because discord.py reads only the channel."""
    channel_id = payload.get("channel_id")
    if payload.get("channel") or not (isinstance(channel_id, str) and channel_id.isdigit()):
        parse(payload)
        return
    known = client.get_channel(int(channel_id))
    if known is not None:
        is_private = isinstance(known, discord.abc.PrivateChannel)
        kind = discord.ChannelType.private if is_private else known.type
        parse({**payload, "channel": {"id": channel_id, "type": kind.value}})
        return
    spawn(_fetch_channel_and_parse(rest, parse, payload, channel_id), name="discord interaction")


async def _fetch_channel_and_parse(rest: RestClient, parse: _Parse, payload: JsonObject, channel_id: str) -> None:
    try:
        channel = await rest.call("GET", "/channels/{channel_id}", channel_id=channel_id)
        parse({**payload, "channel": channel})
    except SurfaceError as error:
        log.info("discord: the channel of an interaction cannot be fetched: %s", error)
        parse(payload)
