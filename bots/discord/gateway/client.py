"""What the gateway sends and discord.py cannot read: one such event would end the connection, so it is passed over."""

import logging
import threading
from collections.abc import Callable
from functools import partial

import discord
from discord.gateway import KeepAliveHandler

from bots.discord.rest.client import RestClient
from core.domain.errors import SurfaceError
from core.domain.messages import JsonObject
from core.tasks import spawn

log = logging.getLogger(__name__)

SESSION_EVENTS = frozenset({"READY", "RESUMED"})
"""Without these there is no session, so a connection where they cannot be read is none."""
MESSAGE_EVENTS = frozenset({"MESSAGE_CREATE", "MESSAGE_UPDATE"})
_Parse = Callable[[JsonObject], None]


def tolerate_malformed_events(client: discord.Client, rest: RestClient) -> None:
    """Lets the client live with events that it cannot read. Of a message told in part the whole is asked for."""
    parsers = client._connection.parsers  # noqa: SLF001 - the table that the gateway looks into # pyright: ignore[reportPrivateUsage]
    for name, parse in list(parsers.items()):
        if name not in SESSION_EVENTS:
            parsers[name] = partial(_parse_or_fetch, rest, name, parse)


def _parse_or_fetch(rest: RestClient, name: str, parse: _Parse, payload: JsonObject) -> None:
    try:
        parse(payload)
    except Exception as error:
        problem = type(error).__name__
        if name in MESSAGE_EVENTS:
            log.info("a %s of Discord is incomplete (%s): the message is asked for", name, problem)
            spawn(_fetch_and_parse(rest, name, parse, payload), name="discord message")
        else:
            log.warning("a %s of Discord cannot be read: %s", name, problem)


async def _fetch_and_parse(rest: RestClient, name: str, parse: _Parse, payload: JsonObject) -> None:
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


def stop_heartbeat_threads(client: discord.Client) -> None:
    """Ends those that the client's `close` does not know.

    A connection is the client's only once it has identified itself, for which several shards wait five seconds each;
    its heart beats from the greeting on, and would do so after the event loop's end.
    """
    for thread in threading.enumerate():
        if isinstance(thread, KeepAliveHandler) and _belongs_to(thread, client):
            thread.stop()


def _belongs_to(thread: KeepAliveHandler, client: discord.Client) -> bool:
    return thread.ws._dispatch == client.dispatch  # noqa: SLF001 - nothing else says whose it is # pyright: ignore[reportPrivateUsage]
