"""Reads the history of threads for the agent's context."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from bots.slack import limits
from bots.slack.events.cursors import is_message_ts
from bots.slack.events.message_content import build_message_text, parse_files
from bots.slack.events.payload_fields import get_int, get_object, get_objects, get_text
from bots.slack.render.mrkdwn import mentioned_user_ids, message_mrkdwn
from bots.slack.web_api.client import Identity, Parameters, SlackClient
from core.domain.errors import SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.threads import Address, ChatMessage, ChatPage, Person
from core.failpoints import Failpoint

if TYPE_CHECKING:
    from bots.slack.workspaces import Workspace, Workspaces

log = logging.getLogger(__name__)

READ = Failpoint("slack.read_talk")
THREAD_PAGES_MAX = 10
READ_SECONDS_MAX = 4.0
"""After this time, the part of the thread that has been read so far is used."""
LINKS_MAX = 3
_LINK = re.compile(
    r"https?://[\w.:-]{1,100}/archives/([CDG][A-Z0-9]{1,40})/p(\d{10})(\d{6})(?:\?\S{0,200}?thread_ts=(\d{10}\.\d{6}))?"
)


class SlackThreadHistory:
    """Reads the messages that others wrote in a thread (ChatHistory), with the client of the thread's workspace."""

    def __init__(self, workspaces: "Workspaces") -> None:
        self._workspaces = workspaces

    async def read(self, address: Address, *, before: datetime, limit: int, after: datetime | None = None) -> ChatPage:
        if float(address.thread_key) >= before.timestamp():
            return ChatPage()
        workspace = await self._workspaces.require_for_address(address)
        found, is_partial = await _replies(workspace.client, address, before, after)
        earliest = after.timestamp() if after else 0.0
        within = [one for one in found if earliest < float(get_text(one, "ts"))]
        others = [one for one in within if not _is_own(one, workspace.client.identity)]
        newest = others[-limit:]
        first = others[0] if others and get_text(others[0], "ts") == address.thread_key else None
        omitted = len(others) - len(newest)
        if is_partial and after is None:
            # only the thread's reply count shows how many messages follow those that could be read
            replies = next((get_int(one, "reply_count") or 0 for one in within), 0)
            omitted += max(0, replies + 1 - len(within))
        root = first if first is not None and first not in newest else None
        if root is not None:
            omitted -= 1
        messages = await self._chat_messages(workspace, [*([root] if root else []), *newest])
        return ChatPage(
            messages=messages[1:] if root else messages,
            root=messages[0] if root else None,
            omitted=omitted,
            is_partial=is_partial,
        )

    def parse_sent_at(self, message_ref: str) -> datetime:
        return time_from_message_ts(message_ref)

    async def read_linked(self, address: Address, text: str, *, person_id: str) -> dict[str, ChatMessage | None]:
        workspace = await self._workspaces.require_for_address(address)
        found: dict[str, ChatMessage | None] = {}
        for link in islice(_LINK.finditer(text), LINKS_MAX):
            channel, ts = link[1], f"{link[2]}.{link[3]}"
            found[link[0]] = None
            try:
                if await _may_see(workspace, channel, address, person_id):
                    parameters: Parameters = {
                        "channel": channel,
                        "ts": link[4] or ts,
                        "oldest": ts,
                        "latest": ts,
                        "inclusive": True,
                        "limit": 2,
                    }
                    with READ:
                        page = await workspace.client.read("conversations.replies", parameters)
                    matches = [one for one in get_objects(page, "messages") if get_text(one, "ts") == ts]
                    messages = await self._chat_messages(workspace, matches)
                    found[link[0]] = messages[0] if messages else None
            except SurfaceRefused as error:
                log.info("slack: a linked message cannot be read: %s", error.code)
        return found

    async def _chat_messages(self, workspace: "Workspace", found: Sequence[JsonObject]) -> tuple[ChatMessage, ...]:
        ids = {get_text(one, "user") for one in found}
        for one in found:
            ids |= mentioned_user_ids(message_mrkdwn(one))
        names = await workspace.people.find_names(ids - {""})
        team_id = workspace.client.identity.team_id
        return tuple(
            replace(message, files=tuple(self._workspaces.sign_file(team_id, file) for file in message.files))
            for message in (parse_chat_message(one, names) for one in found)
        )


async def _may_see(workspace: "Workspace", channel_id: str, address: Address, person_id: str) -> bool:
    """Whether the person may read the channel: it is the channel that they write in, or every full member may read
    it."""
    if channel_id == address.channel_id:
        return True
    if workspace.uses_organisation_token:
        return False  # the token reads the channels of all the organisation's workspaces
    answer = await workspace.client.read("conversations.info", {"channel": channel_id})
    channel = get_object(answer, "channel")
    hidden = ("is_private", "is_im", "is_mpim", "is_group")
    if any(channel.get(name) is True for name in hidden) or not channel.get("is_channel"):
        return False
    actor = await workspace.people.fetch_actor_context(person_id)
    return actor.is_known and not actor.is_guest and not actor.home_id


async def _replies(
    client: SlackClient, address: Address, before: datetime, after: datetime | None
) -> tuple[list[JsonObject], bool]:
    """Returns the thread's messages before a time, oldest first, and whether some could not be read.

    conversations.replies lists the oldest messages first. Apps outside Slack's Marketplace may call it only once a
    minute, for 15 messages."""
    found: dict[str, JsonObject] = {}
    parameters: dict[str, str | int | bool] = {
        "channel": address.channel_id,
        "ts": address.thread_key,
        "latest": f"{before.timestamp():.6f}",
        "oldest": f"{after.timestamp():.6f}" if after else "0",
        "limit": limits.THREAD_PAGE_MAX,
    }
    is_partial = True
    try:
        async with asyncio.timeout(READ_SECONDS_MAX):
            for _ in range(THREAD_PAGES_MAX):
                with READ:
                    page = await client.read("conversations.replies", parameters)
                found |= {get_text(one, "ts"): one for one in get_objects(page, "messages")}
                cursor = get_text(page, "response_metadata", "next_cursor")
                if not cursor:
                    is_partial = False
                    break
                parameters["cursor"] = cursor
    except (SurfaceError, TimeoutError) as error:
        if not found:
            raise
        log.info("slack: a thread was read only in part: %s", type(error).__name__)
    # every page contains the thread's root, whatever `oldest` and `latest` are
    kept = sorted(ts for ts in found if is_message_ts(ts) and float(ts) < before.timestamp())
    return [found[ts] for ts in kept], is_partial


def _is_own(message: JsonObject, identity: Identity) -> bool:
    """Whether the agent or Slack itself wrote the message. Such messages are not shown to the agent as chatter of
    others."""
    is_said = get_text(message, "subtype") in _SAID
    is_ours = get_text(message, "user") == identity.user_id
    is_ours = is_ours or get_text(message, "bot_id") in {identity.bot_id} - {""}
    return not is_said or is_ours


_SAID = frozenset({"", "file_share", "thread_broadcast", "me_message", "bot_message"})


def time_from_message_ts(message_ref: str) -> datetime:
    """Returns when the message was sent. Raises ValueError if `message_ref` is not a message id."""
    if not is_message_ts(message_ref):
        raise ValueError(message_ref)
    return datetime.fromtimestamp(float(message_ref), UTC)


def parse_chat_message(message: JsonObject, names: Mapping[str, str]) -> ChatMessage:
    """Returns the message as its readers see it. For an app, the author has the app's name."""
    user, bot_id = get_text(message, "user"), get_text(message, "bot_id")
    is_app = bool(bot_id) or "bot_profile" in message
    app_name = get_text(message, "username") or get_text(message, "bot_profile", "name")
    name = (app_name if is_app else "") or names.get(user) or user or "an app"
    return ChatMessage(
        author=Person(person_id=user or bot_id, name=name),
        text=build_message_text(message, names, bot_user_id=""),
        sent_at=datetime.fromtimestamp(float(get_text(message, "ts")), UTC),
        message_ref=get_text(message, "ts"),
        files=parse_files(message),
        is_app=is_app,
    )
