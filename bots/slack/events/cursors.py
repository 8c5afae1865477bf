"""Channel cursors: the newest message received from each channel, stored so that backfill knows what was missed."""

import re
from collections import OrderedDict
from collections.abc import Collection

from bots.inbound.cursor_writer import CursorWriter
from core.stores import Inbox

PLATFORM = "slack"
_CHANNELS_REMEMBERED_MAX = 10_000
_MESSAGE_TS = re.compile(r"\d{10}\.\d{6}")


def is_message_ts(ts: str) -> bool:
    """Whether the string is a message ts. Message ts strings sort chronologically."""
    return _MESSAGE_TS.fullmatch(ts) is not None


class ChannelCursors:
    """Tracks the newest message received from each channel. Channels are keyed by `team:channel`.

    A message after a gap moves only the cursor in memory. The stored cursor stays before the gap until the gap is
    read."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._writer = CursorWriter(inbox, PLATFORM)
        self._newest: OrderedDict[str, str] = OrderedDict()
        self._is_paused = False
        self._gaps: set[str] = set()
        self._waiting: set[str] = set()

    def record_message(self, team_id: str, channel_id: str, ts: str) -> None:
        """Records that a message of the channel was stored or ignored."""
        scope = f"{team_id}:{channel_id}"
        if not (channel_id and is_message_ts(ts)) or ts <= self._newest.get(scope, ""):
            return  # Slack sends a mention twice
        self._remember(scope, ts)
        if self._is_paused:
            self._waiting.add(scope)
        elif scope not in self._gaps:
            self._writer.advance(scope, ts)

    async def mark_ignored(self, dedupe_key: str) -> None:
        """Records that the agent ignored a message, so that backfill ignores it too. Raises StorageUnavailable."""
        await self._inbox.claim_key(_ignored_key(dedupe_key))

    async def is_marked_ignored(self, dedupe_key: str) -> bool:
        """Whether the agent ignored the message with this dedupe key. Raises StorageUnavailable."""
        return await self._inbox.is_key_claimed(_ignored_key(dedupe_key))

    def pause(self) -> None:
        """Stops storing cursors until `resume` is called, because messages may be missed."""
        self._is_paused = True

    def resume_with_gaps(self, gaps: Collection[str] | None = None) -> None:
        """Stores cursors again. For channels in `gaps`, storing resumes only after `close_gap`. Without `gaps`, no
        message was missed, and the earlier gaps stay."""
        if gaps is not None:
            self._gaps = set(gaps)
        self._is_paused = False
        waiting, self._waiting = self._waiting - self._gaps, set()
        for scope in waiting & self._newest.keys():
            self._writer.advance(scope, self._newest[scope])

    def close_gap(self, scope: str, ts: str = "") -> None:
        """Ends the gap of a channel that was read up to `ts`. If `ts` is empty, the rest of the gap is given up."""
        self._gaps.discard(scope)
        if is_message_ts(ts):
            self._remember(scope, ts)
        if scope in self._newest and not self._is_paused:
            self._writer.advance(scope, self._newest[scope])

    async def flush(self) -> None:
        """Stores the cursors that are not stored yet. Failures are only logged."""
        await self._writer.flush()

    def _remember(self, scope: str, ts: str) -> None:
        self._newest[scope] = max(self._newest.pop(scope, ""), ts)
        while len(self._newest) > _CHANNELS_REMEMBERED_MAX:
            self._newest.popitem(last=False)


def _ignored_key(dedupe_key: str) -> str:
    return f"{dedupe_key}:left"
