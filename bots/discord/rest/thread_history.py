"""Reads the messages of a Discord thread that were posted by others."""

import re
from contextlib import suppress
from datetime import datetime
from itertools import islice

import discord

from bots.discord.address import is_direct_message, message_channel_id
from bots.discord.gateway.malformed_payloads import parse_without_bad_parts
from bots.discord.gateway.parse import full_text, parse_files, parse_person
from bots.discord.rest.client import UNKNOWN_CHANNEL, RestClient, get_objects, get_text
from core.domain.errors import SurfaceRefused
from core.domain.json import JsonObject
from core.domain.threads import Address, ChatMessage, ChatPage
from core.failpoints import Failpoint

READ = Failpoint("discord.read_talk")
PAGE_MAX = 100
"""Messages per page, Discord's maximum."""
LINKS_MAX = 3
_LINK = re.compile(r"https?://[\w.:-]{1,100}/channels/(\d{1,20}|@me)/(\d{1,20})/(\d{1,20})(?!\d)")
_SAID = (
    discord.MessageType.default,
    discord.MessageType.reply,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
)
_PRIVATE_THREAD = 12
_THREADS = frozenset({10, 11, _PRIVATE_THREAD})
_READABLE = discord.Permissions(view_channel=True, read_message_history=True)


class DiscordThreadHistory:
    """Implements ChatHistory for Discord."""

    def __init__(self, rest: RestClient, client: discord.Client) -> None:
        self._rest = rest
        self._client = client

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        is_direct = is_direct_message(address)
        if not is_direct and discord.utils.snowflake_time(int(address.thread_key)) >= before:
            return ChatPage()
        size = min(limit, PAGE_MAX)
        query = {"limit": str(size), "before": str(discord.utils.time_snowflake(before))}
        with READ:
            found = await read_message_page(self._rest, address, query)
        messages = [self._chat_message(one) for one in found]
        refs = {one.message_ref for one in messages if one}
        heard = [one for one in messages if one and (after is None or one.sent_at > after)]
        is_whole = len(found) < size or (after is not None and len(heard) < len(found))
        root, omitted = None, 0
        if after is None and address.has_threads and address.thread_key not in refs:
            # the message that started the thread has the thread's id; in a forum post, it is inside the post
            for channel_id in (address.channel_id, address.thread_key):
                with suppress(SurfaceRefused):
                    root = await self._message(channel_id, address.thread_key)
                    break
        if not is_whole:
            thread = {} if is_direct else await self._get("/channels/{channel_id}", channel_id=address.thread_key)
            count = thread.get("total_message_sent") or thread.get("message_count")
            omitted = max(1, count - len(found)) if isinstance(count, int) else 1
        heard.sort(key=lambda one: int(one.message_ref))
        return ChatPage(messages=tuple(heard), root=root, omitted=omitted)

    def parse_sent_at(self, message_ref: str) -> datetime:
        if not (message_ref.isascii() and message_ref.isdigit() and len(message_ref) < 20):
            raise ValueError(message_ref)
        return discord.utils.snowflake_time(int(message_ref))

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        del person_id  # only links to channels that everybody in the server may read are resolved
        found: dict[str, ChatMessage | None] = {}
        for link in islice(_LINK.finditer(text), LINKS_MAX):
            guild_id, channel_id, message_id = link.groups()
            found[link[0]] = None
            # a refused link does not reveal whether it leads to one of the bot's own servers and channels
            with suppress(SurfaceRefused):
                if guild_id == address.workspace_id and await self._may_see(channel_id, address):
                    found[link[0]] = await self._message(channel_id, message_id)
        return found

    async def _may_see(self, channel_id: str, address: Address) -> bool:
        """Whether everybody in the server may read the channel, or the conversation is in that channel."""
        here = {address.channel_id, message_channel_id(address)}
        if channel_id in here:
            return True
        channel = await self._get("/channels/{channel_id}", channel_id=channel_id)
        if channel.get("type") in _THREADS:
            parent_id = get_text(channel, "parent_id")
            if channel.get("type") == _PRIVATE_THREAD:
                return False
            if parent_id in here:
                return True
            channel = await self._get("/channels/{channel_id}", channel_id=parent_id)
        guild_id = get_text(channel, "guild_id")
        if guild_id != address.workspace_id:
            return False
        roles = get_objects(await self._rest.call("GET", "/guilds/{guild_id}/roles", guild_id=guild_id))
        everyone = _with_id(roles, guild_id)
        rule = _with_id(get_objects(channel.get("permission_overwrites")), guild_id)
        allowed = (_bits(everyone, "permissions") & ~_bits(rule, "deny")) | _bits(rule, "allow")
        return discord.Permissions(allowed).is_superset(_READABLE)

    async def _message(self, channel_id: str, message_id: str) -> ChatMessage | None:
        return self._chat_message(
            await self._get(
                "/channels/{channel_id}/messages/{message_id}", channel_id=channel_id, message_id=message_id
            )
        )

    async def _get(self, path: str, channel_id: str, message_id: str = "") -> JsonObject:
        with READ:
            answer = await self._rest.call("GET", path, channel_id=channel_id, message_id=message_id)
        return answer if isinstance(answer, dict) else {}

    def _chat_message(self, payload: JsonObject) -> ChatMessage | None:
        channel = self._client.get_partial_messageable(int(get_text(payload, "channel_id") or 0))
        message = parse_without_bad_parts(self._client._connection, channel=channel, data=payload)  # noqa: SLF001 - it parses all payloads # pyright: ignore[reportPrivateUsage]
        author, own = getattr(message, "author", None), self._client.user
        if author is None or message.type not in _SAID or author == own or (author.bot and not own):
            return None
        text, files = full_text(message, 0), parse_files(message)
        if not text and not files:
            return None
        return ChatMessage(
            author=parse_person(author),
            text=text,
            sent_at=message.created_at,
            message_ref=str(message.id),
            files=files,
            is_app=author.bot,
        )


async def read_message_page(rest: RestClient, address: Address, query: dict[str, str]) -> list[JsonObject]:
    """Returns a page of the thread's messages. The page is empty if the thread is not open yet."""
    try:
        path, channel_id = "/channels/{channel_id}/messages", message_channel_id(address)
        return get_objects(await rest.call("GET", path, query=query, channel_id=channel_id))
    except SurfaceRefused as error:
        if error.code == UNKNOWN_CHANNEL:
            return []
        raise


def _with_id(found: list[JsonObject], wanted: str) -> JsonObject:
    return next((one for one in found if one.get("id") == wanted), JsonObject())


def _bits(holder: JsonObject, name: str) -> int:
    value = get_text(holder, name)
    return int(value) if value.isascii() and value.isdigit() else 0
