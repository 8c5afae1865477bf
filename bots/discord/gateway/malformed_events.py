"""What the gateway sends and discord.py cannot read: one such event would end the connection, so it is passed over."""

import logging
from collections.abc import Callable
from functools import partial

import discord

from bots.discord.rest.client import Rest
from core.domain.errors import SurfaceError
from core.domain.messages import JsonObject
from core.tasks import spawn

log = logging.getLogger(__name__)

VITAL = frozenset({"READY", "RESUMED"})
"""Without these there is no session, so a connection where they cannot be read is none."""
MESSAGES = frozenset({"MESSAGE_CREATE", "MESSAGE_UPDATE"})
_Parse = Callable[[JsonObject], None]


def forgive(client: discord.Client, rest: Rest) -> None:
    """Lets the client live with events that it cannot read. Of a message told in part the whole is asked for."""
    parsers = client._connection.parsers  # noqa: SLF001 - the table that the gateway looks into # pyright: ignore[reportPrivateUsage]
    for name, parse in list(parsers.items()):
        if name not in VITAL:
            parsers[name] = partial(_read, rest, name, parse)


def _read(rest: Rest, name: str, parse: _Parse, payload: JsonObject) -> None:
    try:
        parse(payload)
    except Exception as error:
        problem = type(error).__name__
        if name in MESSAGES:
            log.info("a %s of Discord is incomplete (%s): the message is asked for", name, problem)
            spawn(_read_whole(rest, name, parse, payload), name="discord message")
        else:
            log.warning("a %s of Discord cannot be read: %s", name, problem)


async def _read_whole(rest: Rest, name: str, parse: _Parse, payload: JsonObject) -> None:
    channel_id, message_id = payload.get("channel_id"), payload.get("id")
    if not (isinstance(channel_id, str) and isinstance(message_id, str)):
        return
    try:
        whole = await rest.call(
            "GET",
            "/channels/{channel_id}/messages/{message_id}",
            channel_id=channel_id,
            message_id=message_id,
        )
        parse({**payload, **whole} if isinstance(whole, dict) else payload)
    except SurfaceError as error:
        log.warning("a %s of Discord stays incomplete: %s", name, error)
    except Exception as error:
        log.warning("a %s of Discord cannot be read: %s", name, type(error).__name__)
