"""Reads the messages of a Discord thread that people posted."""

import re
from datetime import datetime

import discord

from bots.discord.address import is_direct_message, message_channel_id
from bots.discord.rest.client import RestClient, get_objects, get_text
from core.domain.errors import SurfaceRefused
from core.domain.messages import JsonObject
from core.domain.threads import Address, ChatMessage, Person
from core.failpoints import Failpoint

READ = Failpoint("discord.read_talk")
UNKNOWN_CHANNEL = "10003"
PAGE_MAX = 100
"""Messages per page, Discord's maximum."""
MENTION = re.compile(r"<@!?(\d+)>")


class DiscordThreadHistory:
    """ChatHistory for Discord. Leaves out messages from bots."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def read(
        self, address: Address, *, before: datetime, limit: int, after: datetime | None = None
    ) -> tuple[ChatMessage, ...]:
        if (
            not is_direct_message(address)
            and discord.utils.snowflake_time(int(address.thread_key)) >= before
        ):
            return ()
        messages = [self._heard(one) for one in await self._messages(address, before, limit)]
        heard = [
            one for one in messages if one is not None and (after is None or one.sent_at > after)
        ]
        return tuple(sorted(heard, key=lambda one: one.sent_at))

    async def _messages(self, address: Address, before: datetime, limit: int) -> list[JsonObject]:
        query = {
            "limit": str(min(limit, PAGE_MAX)),
            "before": str(discord.utils.time_snowflake(before)),
        }
        try:
            with READ:
                answer = await self._rest.call(
                    "GET",
                    "/channels/{channel_id}/messages",
                    query=query,
                    channel_id=message_channel_id(address),
                )
        except SurfaceRefused as error:
            # the thread is not open yet, so it has no messages
            if error.code == UNKNOWN_CHANNEL:
                return []
            raise
        return get_objects(answer)

    def _heard(self, message: JsonObject) -> ChatMessage | None:
        author = message.get("author")
        content = get_text(message, "content")
        if not isinstance(author, dict) or not content or author.get("bot"):
            return None
        return ChatMessage(
            author=Person(person_id=get_text(author, "id"), name=_name(author)),
            text=MENTION.sub(lambda found: f"@{_mentioned(message, found[1])}", content),
            sent_at=datetime.fromisoformat(get_text(message, "timestamp")),
            message_ref=get_text(message, "id"),
        )


def _mentioned(message: JsonObject, person_id: str) -> str:
    people = get_objects(message.get("mentions"))
    return next((_name(one) for one in people if one.get("id") == person_id), "somebody")


def _name(person: JsonObject) -> str:
    return get_text(person, "global_name") or get_text(person, "username")
