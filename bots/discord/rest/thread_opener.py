"""Opens the thread of a message, makes posts wait until the thread is open, and tags forum posts with their state."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import discord

from bots.discord.limits import THREAD_NAME_MAX, to_single_line
from bots.discord.permissions import CLOSED_CODES, find_bot_permissions
from bots.discord.rest.client import THREAD_EXISTS, RestClient, get_text
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.messages import JsonValue
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.ports import Precondition, Reaction

log = logging.getLogger(__name__)

OPEN_THREAD = Failpoint("discord.open_thread")
TAG = Failpoint("discord.tag")
ARCHIVE_MINUTES = 1440
CLOSED_MAX = 10_000
TAG_NAMES: dict[Reaction, str] = {
    "seen": "working",
    "queued": "working",
    "asking": "waiting",
    "done": "done",
    "failed": "done",
    "limited": "done",
}
"""The name of the tag that shows each reaction on a forum post, if the forum has a tag of that name."""
TAGS_MAX = 5
"""Discord's limit on the tags of one post (docs.discord.com, Modify Channel)."""


class ThreadOpener:
    """Opens threads, and tracks those that this process is opening.

    A thread that is created from a message has the message's id, so its address is known before it exists."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self._opening: dict[str, asyncio.Event] = {}
        self._closed: OrderedDict[str, str] = OrderedDict()
        """Threads that moderators have closed, with the error code for posts there, or "" if it is open again."""

    @asynccontextmanager
    async def opening(self, thread_key: str) -> AsyncGenerator[None]:
        """Context manager: inside the block, `wait_until_open` waits for the thread."""
        event = self._opening.setdefault(thread_key, asyncio.Event())
        try:
            yield
        finally:
            event.set()
            if self._opening.get(thread_key) is event:
                del self._opening[thread_key]

    def mark_open(self, thread_key: str) -> None:
        """Records that the gateway has reported the thread. discord.py's call may return later because of a rate
        limit."""
        event = self._opening.get(thread_key)
        if event is not None:
            event.set()

    def start_session(self) -> None:
        """Forgets which threads are closed, because a new gateway session does not report what happened before it."""
        self._closed.clear()

    def mark_closed(self, thread_key: str, error_code: str) -> None:
        """Records that moderators have locked or deleted the thread. `error_code` is Discord's error code for posts
        there, or "" if the thread is open again."""
        self._closed[thread_key] = error_code
        if len(self._closed) > CLOSED_MAX:
            self._closed.popitem(last=False)

    def refuse_closed(self, address: Address, thread: object) -> None:
        """Raises SurfaceRefused if moderators have locked or deleted the thread, even if the bot could write there."""
        is_locked_now = isinstance(thread, discord.Thread) and thread.locked
        if error_code := CLOSED_CODES["locked"] if is_locked_now else self._closed.get(address.thread_key):
            raise SurfaceRefused("moderators have closed the thread", code=error_code)

    async def wait_until_open(self, address: Address) -> None:
        """Waits while this process is opening the thread. Returns immediately if it is not."""
        event = self._opening.get(address.thread_key)
        if event is not None:
            await event.wait()

    async def add_member(self, address: Address, person_id: str) -> None:
        """Adds a person to the thread, because a thread started from the bot's message contains only the bot. Raises
        SurfaceError."""
        with OPEN_THREAD:
            await self._rest.call(
                "PUT",
                "/channels/{channel_id}/thread-members/{user_id}",
                channel_id=address.thread_key,
                user_id=person_id,
            )

    async def open_thread(self, address: Address, title: str, *, precondition: Precondition | None = None) -> None:
        """Opens the thread of the message that the address names, unless it is open already.

        Raises SurfaceError."""
        try:
            with OPEN_THREAD:
                await self._rest.call(
                    "POST",
                    "/channels/{channel_id}/messages/{message_id}/threads",
                    body=_thread_body(title),
                    precondition=precondition,
                    channel_id=address.channel_id,
                    message_id=address.thread_key,
                )
        except SurfaceRefused as error:
            if error.code != THREAD_EXISTS:
                raise

    async def begin_post(
        self, forum: discord.ForumChannel, title: str, message: JsonObject, *, precondition: Precondition
    ) -> str:
        """Begins a post with the message in a forum. Returns its id, which is also the id of the message.

        Raises SurfaceError."""
        allowed = [str(tag.id) for tag in forum.available_tags if not tag.moderated]
        tags = [*allowed[:1]] if forum.flags.require_tag else []
        with OPEN_THREAD:
            opened = await self._rest.call(
                "POST",
                "/channels/{channel_id}/threads",
                body={**_thread_body(title), "message": message, "applied_tags": [*tags]},
                precondition=precondition,
                channel_id=str(forum.id),
            )
        return get_text(opened, "id")

    async def tag_forum_post(self, post: object, reaction: Reaction, precondition: Precondition | None) -> None:
        """Shows the run's state as a tag of its forum post. Keeps all tags that do not stand for a state.

        Does nothing if the forum has no such tags, or if the bot may not change the tags of other users' posts."""
        if not isinstance(post, discord.Thread) or not isinstance(post.parent, discord.ForumChannel):
            return
        names = {tag.name.casefold(): tag.id for tag in post.parent.available_tags}
        states = {name: names[name] for name in TAG_NAMES.values() if name in names}
        allowed = find_bot_permissions(post, post.guild)
        if not states or allowed is None or not allowed.manage_threads:
            return
        kept = [tag.id for tag in post.applied_tags if tag.id not in states.values()]
        shown = [states[name] for name in (TAG_NAMES[reaction],) if name in states]
        tags = [str(tag_id) for tag_id in (*kept, *shown)]
        if len(tags) > TAGS_MAX:
            return
        try:
            with TAG:
                await self._rest.call(
                    "PATCH",
                    "/channels/{channel_id}",
                    body={"applied_tags": list(tags)},
                    precondition=precondition,
                    channel_id=str(post.id),
                )
        except SurfaceError as error:  # the reaction shows the state, too
            log.info("the tags of forum post %s were not changed: %s", post.id, error)


def _thread_body(title: str) -> JsonObject:
    name = to_single_line(title, THREAD_NAME_MAX) or "Agent"
    return {"name": name, "auto_archive_duration": ARCHIVE_MINUTES}


def is_locked(thread: JsonValue) -> bool:
    """Whether a thread object of Discord's API is locked."""
    about = thread.get("thread_metadata") if isinstance(thread, dict) else None
    return isinstance(about, dict) and about.get("locked") is True
