"""Reads the messages of a Discord thread that others posted."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice

import discord
from pydantic import JsonValue

from bots.discord.address import is_direct_message, message_channel_id
from bots.discord.rest.client import UNKNOWN_CHANNEL, RestClient, get_objects, get_text
from bots.discord.rest.files import attachment_name, build_file_ref, snapshots
from core.domain.errors import SurfaceRefused
from core.domain.messages import JsonObject
from core.domain.outside_text import quote_lines
from core.domain.threads import Address, ChatMessage, ChatPage, IncomingFile, Person
from core.failpoints import Failpoint

READ = Failpoint("discord.read_talk")
PAGE_MAX = 100
"""Messages per page, Discord's maximum."""
LINKS_MAX = 3
MENTION = re.compile(r"<@!?(\d+)>")
_LINK = re.compile(r"https?://[\w.:-]{1,100}/channels/(\d{1,20}|@me)/(\d{1,20})/(\d{1,20})(?!\d)")
_SAID = frozenset({0, 19, 20, 23})
"""Types of messages that people write: plain ones, replies, and answers to commands."""
_PRIVATE_THREAD = 12
_THREADS = frozenset({10, 11, _PRIVATE_THREAD})
_READABLE = discord.Permissions(view_channel=True, read_message_history=True)


class DiscordThreadHistory:
    """ChatHistory for Discord. `user_id` returns the bot's id."""

    def __init__(self, rest: RestClient, user_id: Callable[[], str]) -> None:
        self._rest = rest
        self._user_id = user_id

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        is_direct = is_direct_message(address)
        if not is_direct and discord.utils.snowflake_time(int(address.thread_key)) >= before:
            return ChatPage()
        size = min(limit, PAGE_MAX)
        found = await self._messages(address, before, size)
        messages = [self._chat_message(one) for one in found]
        refs = {one.message_ref for one in messages if one}
        heard = [one for one in messages if one and (after is None or one.sent_at > after)]
        is_whole = len(found) < size or (after is not None and len(heard) < len(found))
        root, omitted = None, 0
        if after is None and not is_direct and address.thread_key not in refs:
            root = await self._root(address)
        if not is_whole:
            omitted = 1 if is_direct else max(1, await self._message_count(address) - len(found))
        return ChatPage(messages=tuple(sorted(heard, key=lambda one: one.sent_at)), root=root, omitted=omitted)

    def sent_at(self, message_ref: str) -> datetime:
        if not (message_ref.isascii() and message_ref.isdigit() and len(message_ref) < 20):
            raise ValueError(message_ref)
        return discord.utils.snowflake_time(int(message_ref))

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        del person_id  # only channels that everybody in the server may read are resolved
        found: dict[str, ChatMessage | None] = {}
        for link in islice(_LINK.finditer(text), LINKS_MAX):
            guild_id, channel_id, message_id = link.groups()
            found[link[0]] = None
            # the bot's own servers and channels cannot be told from others' by a link that was refused
            with suppress(SurfaceRefused):
                if guild_id == address.workspace_id and await self._may_see(channel_id, address):
                    found[link[0]] = await self._message(channel_id, message_id)
        return found

    async def _may_see(self, channel_id: str, address: Address) -> bool:
        """Whether everybody in the server may read the channel, or the conversation is in it."""
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

    async def _root(self, address: Address) -> ChatMessage | None:
        """Returns the message that the thread was started from. It is in the thread's channel, or that of a forum post
        in the post itself, and has the id of the thread."""
        for channel_id in (address.channel_id, address.thread_key):
            with suppress(SurfaceRefused):
                return await self._message(channel_id, address.thread_key)
        return None

    async def _message_count(self, address: Address) -> int:
        thread = await self._get("/channels/{channel_id}", channel_id=address.thread_key)
        count = thread.get("total_message_sent") or thread.get("message_count")
        return count if isinstance(count, int) else 0

    async def _get(self, path: str, channel_id: str, message_id: str = "") -> JsonObject:
        with READ:
            answer = await self._rest.call("GET", path, channel_id=channel_id, message_id=message_id)
        return answer if isinstance(answer, dict) else {}

    async def _messages(self, address: Address, before: datetime, limit: int) -> list[JsonObject]:
        query = {"limit": str(limit), "before": str(discord.utils.time_snowflake(before))}
        with READ:
            return await read_page(self._rest, address, query)

    def _chat_message(self, message: JsonObject) -> ChatMessage | None:
        author = message.get("author")
        if not isinstance(author, dict) or message.get("type", 0) not in _SAID:
            return None
        is_app, own_id = author.get("bot") is True, self._user_id()
        if get_text(author, "id") == own_id or (is_app and not own_id):
            return None
        text, files = "\n".join(_lines(message)).strip(), tuple(_files(message))
        if not text and not files:
            return None
        return ChatMessage(
            author=Person(person_id=get_text(author, "id"), name=_name(author)),
            text=text,
            sent_at=datetime.fromisoformat(get_text(message, "timestamp")),
            message_ref=get_text(message, "id"),
            files=files,
            is_app=is_app,
        )


async def read_page(rest: RestClient, address: Address, query: dict[str, str]) -> list[JsonObject]:
    """Returns a page of the thread's messages, empty if the thread is not open yet."""
    try:
        path, channel_id = "/channels/{channel_id}/messages", message_channel_id(address)
        return get_objects(await rest.call("GET", path, query=query, channel_id=channel_id))
    except SurfaceRefused as error:
        if error.code == UNKNOWN_CHANNEL:
            return []
        raise


def _lines(message: JsonObject) -> Iterator[str]:
    """Yields what the message shows: its text, embeds, and the messages that it forwards."""
    yield MENTION.sub(lambda found: f"@{_mentioned(message, found[1])}", get_text(message, "content"))
    yield from (f"[Sticker: {get_text(one, 'name')}]" for one in get_objects(message.get("sticker_items")))
    for embed in get_objects(message.get("embeds")):
        yield from filter(None, (get_text(embed, key) for key in ("title", "url", "description")))
        for field in get_objects(embed.get("fields")):
            yield f"{get_text(field, 'name')}: {get_text(field, 'value')}"
        footer = embed.get("footer")
        yield get_text(footer, "text") if isinstance(footer, dict) else ""
    yield from _poll_lines(message.get("poll"))
    for snapshot in snapshots(message):
        yield "Forwarded message:"
        yield quote_lines("\n".join(_lines(snapshot)).strip())


def _poll_lines(poll: JsonValue) -> Iterator[str]:
    """Yields a poll's question, and its answers with their votes, which Discord may leave out while it is open."""
    if not isinstance(poll, dict):
        return
    results = poll.get("results")
    told = results if isinstance(results, dict) else JsonObject()
    counts = {str(one.get("id")): one.get("count") for one in get_objects(told.get("answer_counts"))}
    is_final = told.get("is_finalized") is True
    yield f"Poll{' (closed)' if is_final else ''}: {get_text(poll.get('question'), 'text') or '(without a question)'}"
    for answer in get_objects(poll.get("answers")):
        count = counts.get(str(answer.get("answer_id")), 0 if told else "?")
        yield f"- {get_text(answer.get('poll_media'), 'text')}: {count} votes"


def _files(message: JsonObject) -> Iterator[IncomingFile]:
    for holder in (message, *snapshots(message)):
        for attachment in get_objects(holder.get("attachments")):
            size = attachment.get("size")
            yield IncomingFile(
                file_ref=build_file_ref(
                    channel_id=get_text(message, "channel_id"),
                    message_id=get_text(message, "id"),
                    attachment_id=get_text(attachment, "id"),
                    url=get_text(attachment, "url"),
                ),
                name=attachment_name(get_text(attachment, "filename"), get_text(attachment, "title")),
                mime_type=get_text(attachment, "content_type") or "application/octet-stream",
                size_bytes=size if isinstance(size, int) else None,
            )


def _with_id(found: list[JsonObject], wanted: str) -> JsonObject:
    return next((one for one in found if one.get("id") == wanted), JsonObject())


def _bits(holder: JsonObject, name: str) -> int:
    value = get_text(holder, name)
    return int(value) if value.isascii() and value.isdigit() else 0


def _mentioned(message: JsonObject, person_id: str) -> str:
    people = get_objects(message.get("mentions"))
    return next((_name(one) for one in people if one.get("id") == person_id), "somebody")


def _name(person: JsonValue) -> str:
    return get_text(person, "global_name") or get_text(person, "username")
