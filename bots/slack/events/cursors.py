"""Channel cursors: the newest message received from each channel, stored so that backfill knows what was missed."""

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Collection

from core.domain.errors import StorageUnavailable
from core.stores import Inbox

PLATFORM = "slack"
UNADDRESSED_INTERVAL_SECONDS = 30.0
"""Messages that the bot ignores advance a channel's cursor at most this often."""
_CHANNELS_REMEMBERED_MAX = 10_000
_MESSAGE_TS = re.compile(r"\d{10}\.\d{6}")

log = logging.getLogger(__name__)


def is_message_ts(ts: str) -> bool:
    """Whether the string is a message ts. Message ts strings sort chronologically."""
    return _MESSAGE_TS.fullmatch(ts) is not None


class ChannelCursors:
    """Tracks the newest message received from each channel, by `team:channel`.

    A message after a gap moves only the cursor in memory. The stored cursor stays before the gap until the gap is read.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._newest: OrderedDict[str, str] = OrderedDict()
        self._written_at: dict[str, float] = {}
        self._written: dict[str, str] = {}
        self._is_paused = False
        self._gaps: set[str] = set()
        self._waiting: set[str] = set()

    async def record_message(self, team_id: str, channel_id: str, ts: str, *, is_unaddressed: bool = False) -> None:
        """Records that a message of the channel was stored or ignored. Never raises."""
        if not (channel_id and is_message_ts(ts)):
            return
        scope = f"{team_id}:{channel_id}"
        self._remember(scope, ts)
        age = time.monotonic() - self._written_at.get(scope, -UNADDRESSED_INTERVAL_SECONDS)
        is_due = not is_unaddressed or age >= UNADDRESSED_INTERVAL_SECONDS
        if self._is_paused:
            self._waiting.add(scope)
        elif is_due and scope not in self._gaps:
            await self._write(scope)

    async def mark_ignored(self, dedupe_key: str) -> None:
        """Records that the agent ignored a message, so that backfill ignores it too. Raises StorageUnavailable."""
        await self._inbox.claim(_ignored_key(dedupe_key))

    async def is_marked_ignored(self, dedupe_key: str) -> bool:
        """Whether the agent ignored the message with this dedupe key. Raises StorageUnavailable."""
        return await self._inbox.is_claimed(_ignored_key(dedupe_key))

    def pause(self) -> None:
        """Stops storing cursors until `resume` or `unpause` is called, because messages may be missed."""
        self._is_paused = True

    async def resume(self, gaps: Collection[str]) -> None:
        """Stores cursors again. For channels in `gaps`, storing resumes only after `close_gap`. Never raises."""
        self._gaps = set(gaps)
        self._is_paused = False
        waiting, self._waiting = self._waiting - self._gaps, set()
        for scope in waiting & self._newest.keys():
            await self._write(scope)

    def unpause(self) -> None:
        """Stores cursors again. Call instead of `resume` if no message was missed."""
        self._is_paused = False

    async def close_gap(self, scope: str, ts: str = "") -> None:
        """Ends the gap of a channel, which was read up to `ts`, or is given up if `ts` is empty. Never raises."""
        self._gaps.discard(scope)
        if is_message_ts(ts):
            self._remember(scope, ts)
        if scope in self._newest and not self._is_paused:
            await self._write(scope)

    def _remember(self, scope: str, ts: str) -> None:
        self._newest[scope] = max(self._newest.pop(scope, ""), ts)
        while len(self._newest) > _CHANNELS_REMEMBERED_MAX:
            forgotten, _ = self._newest.popitem(last=False)
            self._written_at.pop(forgotten, None)
            self._written.pop(forgotten, None)

    async def _write(self, scope: str) -> None:
        cursor = self._newest[scope]
        if self._written.get(scope) == cursor:
            return  # Slack sends a mention twice
        self._written_at[scope], self._written[scope] = time.monotonic(), cursor
        try:
            await self._inbox.advance_cursor(PLATFORM, scope, cursor)
        except StorageUnavailable as error:
            # the message itself is stored; an old cursor only means that it is read again
            self._written.pop(scope, None)
            log.info("slack: how far %s was heard is not stored: %s", scope, error)


def _ignored_key(dedupe_key: str) -> str:
    return f"{dedupe_key}:left"
