"""What a channel and its threads hold after a moment, read page by page as the events that it would have been."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from bots.slack.events.cursors import is_mark
from bots.slack.events.payload import children, text
from bots.slack.web_api.client import Parameters, SlackClient
from core.domain.errors import SurfaceRefused
from core.domain.messages import JsonObject
from core.failpoints import Failpoint
from core.web_access.loopback import is_loopback

PAGE = 200
PAGES_MAX = 5
"""Of a channel, and of each thread."""
NEW_THREADS_MAX = 50
"""Threads of a channel that began after the moment and that the agent is not in as yet."""
PAUSE_SECONDS = 2.0
"""Between two calls: Slack allows some fifty a minute, and live events need theirs."""
_GONE = frozenset({"thread_not_found", "message_not_found"})
_CATCH_UP = Failpoint("slack.catch_up")
_LIST = Failpoint("slack.list_channels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """`messages` are `message` events, oldest first. `is_cut`: there was more than may be read."""

    messages: tuple[JsonObject, ...]
    is_cut: bool

    @property
    def newest(self) -> str:
        """ "" where nothing was said."""
        return text(self.messages[-1], "ts") if self.messages else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of one workspace's channels, with `pause_seconds` before each call."""

    client: SlackClient
    pause_seconds: float

    @classmethod
    def of(cls, client: SlackClient) -> "History":
        """At a pace that leaves live events their share of Slack's limits."""
        return cls(client=client, pause_seconds=0 if is_loopback(client.api_url) else PAUSE_SECONDS)

    async def channels(self, kind: str) -> list[str]:
        """The channels of that kind which the bot is in, as far as so many pages go. Raises SurfaceError."""
        asked = {"types": kind, "exclude_archived": True, "limit": PAGE}
        found, _ = await self._pages("users.conversations", "channels", asked, place=_LIST)
        return [channel_id for one in found if (channel_id := text(one, "id"))]

    async def read(self, channel_id: str, oldest: str, threads: Sequence[str]) -> Said:
        """What was said after `oldest` at the top, in these threads, and in those that began since.
        Raises SurfaceError."""
        asked: dict[str, str | int | bool] = {
            "channel": channel_id,
            "oldest": oldest,
            "limit": PAGE,
        }
        top, is_cut = await self._pages("conversations.history", "messages", asked)
        found = {text(one, "ts"): one for one in top}
        for thread_key in _threads_of(top, oldest, threads):
            try:
                replies, is_more = await self._pages(
                    "conversations.replies", "messages", {**asked, "ts": thread_key}
                )
            except SurfaceRefused as error:
                if error.code not in _GONE:
                    raise
                continue
            is_cut = is_cut or is_more
            found |= {text(one, "ts"): one for one in replies}
        kept = sorted(ts for ts in found if is_mark(ts) and ts > oldest)
        return Said(messages=tuple(_event(found[ts], channel_id) for ts in kept), is_cut=is_cut)

    async def _pages(
        self, method: str, what: str, asked: Parameters, *, place: Failpoint = _CATCH_UP
    ) -> tuple[list[JsonObject], bool]:
        """Of a channel Slack gives the newest first, of a thread the root and then the earliest; and whether there was
        more."""
        found: list[JsonObject] = []
        for _ in range(PAGES_MAX):
            await asyncio.sleep(self.pause_seconds)
            with place:
                answer = await self.client.read(method, asked)
            found += children(answer, what)
            cursor = text(answer, "response_metadata", "next_cursor")
            if not cursor:
                return found, False
            asked = {**asked, "cursor": cursor}
        return found, True


def _threads_of(top: Sequence[JsonObject], oldest: str, joined: Sequence[str]) -> list[str]:
    """Those that may hold something new: the joined ones but where the root tells of nothing, and others."""
    latest = {text(one, "ts"): text(one, "latest_reply") for one in top}
    here = [one for one in joined if is_mark(one) and latest.get(one, "~") > oldest]
    others = [one for one, reply in latest.items() if reply > oldest and one not in joined]
    return [*here, *others[:NEW_THREADS_MAX]]


def _event(message: JsonObject, channel_id: str) -> JsonObject:
    """The history leaves out what is the same in all of it."""
    return {
        **message,
        "type": "message",
        "channel": channel_id,
        "channel_type": "im" if channel_id.startswith("D") else "channel",
        "event_ts": text(message, "ts"),
    }
