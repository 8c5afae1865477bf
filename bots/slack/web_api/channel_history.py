"""Reads the messages that a channel received while the bot was offline."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bots.slack.events.cursors import is_message_ts
from bots.slack.events.payload_fields import get_objects, get_text
from bots.slack.web_api.client import Parameters, SlackClient
from core.domain.errors import SurfaceRefused
from core.domain.json import JsonObject
from core.failpoints import Failpoint
from core.web_access.guard import is_loopback

PAGE_SIZE = 200
CHANNEL_PAGES_MAX = 5
"""Limit on pages read per channel, and per thread."""
NEW_THREADS_MAX = 50
"""Limit per channel on threads with new replies that the agent has not joined yet."""
PAUSE_SECONDS = 2.0
"""Pause before each call, because Slack allows about 50 calls a minute and live events need some of them."""
_GONE = frozenset({"thread_not_found", "message_not_found"})
_CATCH_UP = Failpoint("slack.catch_up")
_LIST = Failpoint("slack.list_channels")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedMessages:
    """Messages from a channel's history as `message` events, oldest first. `is_cut` is true if not all could be
    read."""

    messages: tuple[JsonObject, ...]
    is_cut: bool

    @property
    def newest(self) -> str:
        """The ts of the newest message, or "" if there are no messages."""
        return get_text(self.messages[-1], "ts") if self.messages else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHistory:
    """Reads the channels of one workspace and waits `pause_seconds` before each call."""

    client: SlackClient
    pause_seconds: float

    @classmethod
    def for_client(cls, client: SlackClient) -> "ChannelHistory":
        """Returns a reader that is slow enough to leave live events a share of Slack's rate limits."""
        return cls(client=client, pause_seconds=0 if is_loopback(client.api_url) else PAUSE_SECONDS)

    async def list_channels(self, kind: str) -> list[str]:
        """Returns the ids of the bot's channels of one type, such as `im`, up to the page limit. Raises
        SurfaceError."""
        parameters = {"types": kind, "exclude_archived": True, "limit": PAGE_SIZE}
        found, _ = await self._fetch_pages("users.conversations", "channels", parameters, place=_LIST)
        return [channel_id for one in found if (channel_id := get_text(one, "id"))]

    async def read_since(self, channel_id: str, oldest: str, threads: Sequence[str]) -> MissedMessages:
        """Returns the channel's top-level messages and replies after `oldest`.

        Replies are read in `threads` and in other threads with new replies. Raises SurfaceError."""
        parameters: dict[str, str | int | bool] = {"channel": channel_id, "oldest": oldest, "limit": PAGE_SIZE}
        top, is_cut = await self._fetch_pages("conversations.history", "messages", parameters)
        found = {get_text(one, "ts"): one for one in top}
        latest = {get_text(one, "ts"): get_text(one, "latest_reply") for one in top}
        # read a thread of ours unless its first message shows that it has no new replies
        here = [one for one in threads if is_message_ts(one) and latest.get(one, "~") > oldest]
        others = [one for one, reply in latest.items() if reply > oldest and one not in threads]
        for thread_key in [*here, *others[:NEW_THREADS_MAX]]:
            try:
                replies, is_more = await self._fetch_pages(
                    "conversations.replies", "messages", {**parameters, "ts": thread_key}
                )
            except SurfaceRefused as error:
                if error.code not in _GONE:
                    raise
                continue
            is_cut = is_cut or is_more
            found |= {get_text(one, "ts"): one for one in replies}
        kept = sorted(ts for ts in found if is_message_ts(ts) and ts > oldest)
        return MissedMessages(messages=tuple(_as_event(found[ts], channel_id) for ts in kept), is_cut=is_cut)

    async def read_replies(self, channel_id: str, thread_key: str) -> list[JsonObject]:
        """Returns the first replies of a thread as `message` events, oldest first. Raises SurfaceError, also if Slack
        does not answer before the acknowledgement is due."""
        parameters: dict[str, str | int | bool] = {"channel": channel_id, "ts": thread_key}
        with _CATCH_UP:
            answer = await self.client.look_up("conversations.replies", {**parameters, "limit": 15})
        replies = get_objects(answer, "messages")
        return [_as_event(one, channel_id) for one in replies if get_text(one, "ts") != thread_key]

    async def _fetch_pages(
        self, method: str, what: str, parameters: Parameters, *, place: Failpoint = _CATCH_UP
    ) -> tuple[list[JsonObject], bool]:
        """Returns the items of the first pages, and whether there are more pages.

        Slack lists a channel's messages newest first, and a thread's messages from the root on."""
        found: list[JsonObject] = []
        for _ in range(CHANNEL_PAGES_MAX):
            await asyncio.sleep(self.pause_seconds)
            with place:
                answer = await self.client.read(method, parameters)
            found += get_objects(answer, what)
            cursor = get_text(answer, "response_metadata", "next_cursor")
            if not cursor:
                return found, False
            parameters = {**parameters, "cursor": cursor}
        return found, True


def _as_event(message: JsonObject, channel_id: str) -> JsonObject:
    """Returns the message with the fields that a live `message` event has and a message from the history lacks."""
    return {
        **message,
        "type": "message",
        "channel": channel_id,
        "channel_type": "im" if channel_id.startswith("D") else "channel",
        "event_ts": get_text(message, "ts"),
    }
