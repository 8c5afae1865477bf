"""The ChatSurface of Discord: posts, edits, uploads, reactions and the typing indicator."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import discord
from pydantic import JsonValue

from bots.delivery.content import Content
from bots.delivery.reactions import Reactions
from bots.discord.address import DIRECT, DIRECT_WORKSPACE, is_direct_message, message_channel_id, reaction_channel_id
from bots.discord.limits import ANSWER_MAX
from bots.discord.render.components import LAYOUT_REFUSED_CODES, render_content, simplify_layout
from bots.discord.rest import delivery_marker
from bots.discord.rest.client import (
    NOT_FOUND_CODES,
    THREAD_ARCHIVED,
    UNKNOWN_CHANNEL,
    RestClient,
    get_objects,
    get_text,
)
from bots.discord.rest.files import prepare_upload
from bots.discord.rest.thread_history import PAGE_MAX, read_message_page
from bots.discord.rest.thread_opener import ThreadOpener, is_locked
from core.domain.errors import SurfaceError, SurfaceRefused, SurfaceUnclear
from core.domain.json import JsonObject
from core.domain.threads import Address, Platform
from core.failpoints import Failpoint
from core.ports import OutgoingFile, Precondition, Reaction
from core.tasks import cancel, spawn

Sent = Awaitable[JsonValue]
log = logging.getLogger(__name__)

POST = Failpoint("discord.post")
EDIT = Failpoint("discord.edit")
UPLOAD = Failpoint("discord.upload")
REACT = Failpoint("discord.react")

EMOJI: dict[Reaction, str] = {
    "seen": "👀",
    "queued": "⏳",
    "done": "✅",
    "failed": "❌",
    "asking": "❓",
    "limited": "⚠️",
}
CLOSED_REASONS: Mapping[str, str] = {
    "10003": "the channel or thread was deleted",
    "10004": "I am no longer on the server",
    "30033": "the thread has too many participants",
    "50001": "I may not see the channel",
    "50007": "you do not accept direct messages from me",
    "50013": ("I need the permissions “Send Messages”, “Create Public Threads” and “Send Messages in Threads” there"),
    "50024": "the channel does not take messages",
    "50083": "the thread is locked",
    "50278": "we share no server",
    "160005": "the thread is locked",
    "160006": "the server has as many active threads as Discord allows, so please archive some",
    "160007": "the server has as many active threads as Discord allows, so please archive some",
}
"""Errors of a post (docs.discord.com, JSON error codes) after which nothing can be posted in the thread."""
TYPING_SECONDS = 8.0
PAGES_MAX = 20
"""Limit on the pages that `find` searches."""
POSTS_SEARCHED_MAX = 5
"""How many of the bot's newest posts in a forum are searched for a message that may begin one of them."""


class DiscordSurface:
    """Implements ChatSurface and ChatPresence for Discord."""

    platform: Platform = "discord"
    answer_limit = ANSWER_MAX
    files_per_message = 10
    edit_interval_seconds = 1.2
    closed_reasons = CLOSED_REASONS

    def __init__(
        self,
        rest: RestClient,
        thread_opener: ThreadOpener,
        *,
        user_id: Callable[[], str],
        file_limit: Callable[[Address], int],
        was_open: Callable[[int], Awaitable[bool]],
        client: discord.Client,
    ) -> None:
        """`user_id` returns the bot's id. `file_limit` is that of DeliverySurface. `was_open` returns whether a thread
        has ever been open. `client` has the gateway's cache."""
        self._rest = rest
        self._thread_opener = thread_opener
        self._user_id = user_id
        self.file_limit = file_limit
        self._was_open = was_open
        self._client = client
        self._reactions = Reactions(EMOJI)

    async def post(
        self,
        address: Address,
        content: Content,
        *,
        files: Sequence[OutgoingFile] = (),
        delivery_id: str,
        precondition: Precondition | None = None,
    ) -> str:
        """Posts a message (see ChatSurface). If a nonce repeats within minutes, Discord returns the first message."""
        body = render_content(content, delivery_id=delivery_id)
        if files:
            return await self._upload(address, files, body, delivery_id, precondition)
        with POST:
            try:
                return await self._post(address, body, delivery_id, precondition)
            except SurfaceRefused as refusal:
                simple = simplify_layout(body, delivery_id)
                if refusal.code not in LAYOUT_REFUSED_CODES or simple is None:
                    raise
                log.warning("discord: the layout of a message was refused: %s", refusal.code)
                return await self._post(address, simple, delivery_id, precondition)

    async def _post(
        self, address: Address, body: JsonObject, delivery_id: str, precondition: Precondition | None
    ) -> str:
        signed = _with_nonce(body, delivery_id)
        answer = await self._into(
            address,
            lambda channel_id: self._rest.call(
                "POST", "/channels/{channel_id}/messages", body=signed, precondition=precondition, channel_id=channel_id
            ),
            precondition,
        )
        return _message_id(answer)

    async def edit(
        self, address: Address, message_ref: str, content: Content, *, precondition: Precondition | None = None
    ) -> None:
        """Edits a message (see ChatSurface). Unarchives an archived thread first, unless it is locked."""
        body = render_content(content)
        with EDIT:
            try:
                await self._change(address, message_ref, body, precondition)
            except SurfaceRefused as refusal:
                simple = simplify_layout(body)
                if refusal.code not in LAYOUT_REFUSED_CODES or simple is None:
                    raise
                await self._change(address, message_ref, simple, precondition)

    async def _change(
        self, address: Address, message_ref: str, body: JsonObject, precondition: Precondition | None
    ) -> None:
        channel_id = message_channel_id(address)
        path = "/channels/{channel_id}/messages/{message_id}"
        patch = partial(self._rest.call, "PATCH", path, body=body, precondition=precondition)
        try:
            await patch(channel_id=channel_id, message_id=message_ref)
        except SurfaceRefused as error:
            if error.code != THREAD_ARCHIVED:
                raise
            thread = await self._rest.call("GET", "/channels/{channel_id}", channel_id=channel_id)
            if is_locked(thread):
                raise
            await self._rest.call(
                "PATCH",
                "/channels/{channel_id}",
                body={"archived": False},
                precondition=precondition,
                channel_id=channel_id,
            )
            await patch(channel_id=channel_id, message_id=message_ref)

    async def upload(
        self, address: Address, file: OutgoingFile, *, delivery_id: str, precondition: Precondition | None = None
    ) -> str:
        """Uploads a file (see ChatSurface). Returns the id of the message that contains the file."""
        named = replace(file, delivery_id=delivery_id)
        return await self._upload(address, [named], {}, delivery_id, precondition)

    async def _upload(
        self,
        address: Address,
        files: Sequence[OutgoingFile],
        body: JsonObject,
        delivery_id: str,
        precondition: Precondition | None,
    ) -> str:
        bytes_max = self.file_limit(address)
        async with prepare_upload(files, bytes_max=bytes_max) as (about_files, ready):
            signed = _with_nonce({**body, **about_files}, delivery_id)
            with UPLOAD:
                answer = await self._into(
                    address,
                    lambda channel_id: self._rest.upload(
                        "/channels/{channel_id}/messages",
                        body=signed,
                        files=ready,
                        precondition=precondition,
                        channel_id=channel_id,
                    ),
                    precondition,
                )
        return _message_id(answer)

    async def find(self, address: Address, delivery_id: str) -> str | None:
        """Searches the thread for the delivery's message, newest first, back to the time the delivery was created."""
        query = {"limit": str(PAGE_MAX)}
        for _ in range(PAGES_MAX):
            page = await read_message_page(self._rest, address, query)
            for message in page:
                is_own = get_text(message.get("author"), "id") == self._user_id()
                if is_own and delivery_marker.has_marker(message, delivery_id):
                    return get_text(message, "id")
            oldest = min((int(get_text(message, "id")) for message in page), default=0)
            if len(page) < PAGE_MAX or delivery_marker.is_older_than_delivery(oldest, delivery_id):
                return None
            query["before"] = str(oldest)
        return None

    async def find_streams(self, address: Address) -> None:
        """Returns None, because Discord has no streamed messages and a small rate limit for edits."""

    async def delete(self, address: Address, message_ref: str) -> None:
        await self._rest.call(
            "DELETE",
            "/channels/{channel_id}/messages/{message_id}",
            channel_id=message_channel_id(address),
            message_id=message_ref,
        )

    async def tell_privately(self, address: Address, person_id: str, text: str) -> None:
        """Does nothing, because Discord sends private messages only in response to interactions."""

    async def fallback_addresses(self, address: Address, person_id: str) -> AsyncGenerator[Address]:
        """Yields the thread's channel, if everybody there can read the thread, then the direct message with the person
        (see DeliverySurface)."""
        if is_direct_message(address):
            return
        if address.has_threads:
            yield replace(address, thread_key=address.channel_id)
        body: JsonObject = {"recipient_id": person_id}
        opened = await self._rest.call("POST", "/users/@me/channels", body=body)
        yield Address(
            platform=self.platform, workspace_id=DIRECT_WORKSPACE, channel_id=_message_id(opened), thread_key=DIRECT
        )

    async def begin_thread(
        self,
        channel: Address,
        content: Content,
        *,
        title: str,
        delivery_id: str,
        may_be_posted: bool,
        precondition: Precondition,
    ) -> str:
        """Posts the message and opens its thread (see ThreadBeginner). In a forum, begins a post."""
        forum = await self._rest.find_channel(self._client, int(channel.channel_id))
        if isinstance(forum, discord.ForumChannel):
            if may_be_posted and (found := await self._find_post(channel, delivery_id)):
                return found
            message = render_content(content, delivery_id=delivery_id)
            return await self._thread_opener.begin_post(forum, title, message, precondition=precondition)
        top = replace(channel, thread_key=channel.channel_id)
        posted = await self.find(top, delivery_id) if may_be_posted else None
        posted = posted or await self.post(top, content, delivery_id=delivery_id, precondition=precondition)
        await self._thread_opener.open_thread(replace(channel, thread_key=posted), title, precondition=precondition)
        return posted

    async def _find_post(self, forum: Address, delivery_id: str) -> str | None:
        """Searches the newest posts of the bot in the forum for the delivery's message."""
        active = await self._rest.call("GET", "/guilds/{guild_id}/threads/active", guild_id=forum.workspace_id)
        threads = get_objects(active.get("threads")) if isinstance(active, dict) else []
        whose = {"parent_id": forum.channel_id, "owner_id": self._user_id()}
        own = (get_text(thread, "id") for thread in threads if whose.items() <= thread.items())
        for thread_id in sorted(own, key=int, reverse=True)[:POSTS_SEARCHED_MAX]:
            if found := await self.find(replace(forum, thread_key=thread_id), delivery_id):
                return found
        return None

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        """Shows a reaction (see ChatPresence). Adds the first reaction without fetching the message."""
        try:
            place = (reaction_channel_id(address, message_ref), message_ref)
            await self._sign(place, reaction, precondition)
        except SurfaceRefused as error:
            if error.code not in NOT_FOUND_CODES or message_ref != address.thread_key:
                raise
            # the first message of a forum post has the same id as its thread, but is inside the thread
            await self._sign((message_channel_id(address), message_ref), reaction, precondition)
        if reaction is not None and not is_direct_message(address):
            post = self._client.get_channel(int(address.thread_key))
            await self._thread_opener.tag_forum_post(post, reaction, precondition)

    async def _sign(self, place: tuple[str, str], reaction: Reaction | None, precondition: Precondition | None) -> None:
        await self._reactions.set_only_reaction(
            place[1],
            reaction,
            sent_at_seconds=discord.utils.snowflake_time(int(place[1])).timestamp(),
            add=partial(self._reaction, "PUT", place, precondition),
            remove=partial(self._reaction, "DELETE", place, precondition),
            fetch_own=partial(self._own_reactions, place),
        )

    @asynccontextmanager
    async def typing(self, address: Address) -> AsyncGenerator[None]:
        """Context manager: inside the block, the thread shows that the agent is typing (see ChatPresence)."""
        sign = spawn(self._typing(address), name="discord typing")
        try:
            yield
        finally:
            await cancel(sign)

    async def _into(
        self, address: Address, send: Callable[[str], Sent], precondition: Precondition | None
    ) -> JsonValue:
        """Sends into the thread. Opens the thread first if it was never open, for example because of a crash.

        If a thread was open and is gone, it has been deleted, so it is not opened again."""
        await self._thread_opener.wait_until_open(address)
        place = message_channel_id(address)
        thread = None if is_direct_message(address) else await self._rest.find_channel(self._client, int(place))
        self._thread_opener.refuse_closed(address, thread)
        try:
            return await send(place)
        except SurfaceRefused as error:
            if error.code != UNKNOWN_CHANNEL or not address.has_threads:
                raise
        # another process may have opened the thread in the meantime
        if not await self._was_open(int(address.thread_key)):
            # name the thread after the text of the message that it starts from, or after the files of that message
            message = await self._rest.call(
                "GET",
                "/channels/{channel_id}/messages/{message_id}",
                channel_id=address.channel_id,
                message_id=address.thread_key,
            )
            text = re.sub(r"<[@#][!&]?\d+>", "", get_text(message, "content")).strip()
            files = get_objects(message.get("attachments")) if isinstance(message, dict) else []
            title = text or ", ".join(get_text(one, "filename") for one in files)
            await self._thread_opener.open_thread(address, title, precondition=precondition)
        return await send(place)

    async def _typing(self, address: Address) -> None:
        await self._thread_opener.wait_until_open(address)
        while True:
            try:
                await self._rest.call("POST", "/channels/{channel_id}/typing", channel_id=message_channel_id(address))
            except SurfaceError as error:
                log.info("the typing indicator was not shown: %s", error)
            await asyncio.sleep(TYPING_SECONDS)

    async def _reaction(
        self, method: str, place: tuple[str, str], precondition: Precondition | None, emoji: str
    ) -> None:
        with REACT:
            await self._rest.call(
                method,
                "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me",
                precondition=precondition,
                channel_id=place[0],
                message_id=place[1],
                emoji=emoji,
            )

    async def _own_reactions(self, place: tuple[str, str]) -> list[str]:
        message = await self._rest.call(
            "GET", "/channels/{channel_id}/messages/{message_id}", channel_id=place[0], message_id=place[1]
        )
        reactions = get_objects(message.get("reactions")) if isinstance(message, dict) else []
        return [get_text(entry.get("emoji"), "name") for entry in reactions if entry.get("me")]


def _with_nonce(body: JsonObject, delivery_id: str) -> JsonObject:
    return {**body, "nonce": delivery_marker.delivery_nonce(delivery_id), "enforce_nonce": True}


def _message_id(answer: JsonValue) -> str:
    message_id = get_text(answer, "id")
    if not message_id:
        raise SurfaceUnclear("Discord answered without a message id.")
    return message_id
