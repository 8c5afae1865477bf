"""How far each channel has been heard, kept in the store, so that a later start knows what it missed."""

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Protocol

from core.domain.errors import StorageUnavailable
from core.domain.threads import JoinedThread

PLATFORM = "slack"
UNADDRESSED_INTERVAL_SECONDS = 30.0
"""Messages that ask for nothing move a channel's mark at most this often."""
_CHANNELS_REMEMBERED_MAX = 10_000
_MESSAGE_TS = re.compile(r"\d{10}\.\d{6}")

log = logging.getLogger(__name__)


class InboxStore(Protocol):
    """The part of the store's inbox that is needed here."""

    async def forward(self, platform: str, scope: str, cursor: str) -> None: ...

    async def cursors(self, platform: str) -> dict[str, str]: ...

    async def claim(self, dedupe_key: str) -> bool: ...

    async def is_claimed(self, dedupe_key: str) -> bool: ...

    async def joined(
        self, platform: str, workspace_id: str, *, limit: int
    ) -> tuple[JoinedThread, ...]: ...


def is_message_ts(ts: str) -> bool:
    """Whether it is a time that Slack gives to messages; such times compare as text."""
    return _MESSAGE_TS.fullmatch(ts) is not None


class ChannelCursors:
    """The newest message heard of each `team:channel`.

    What is heard behind a gap is remembered here alone: the stored mark stays before the gap until that was read.
    """

    def __init__(self, inbox: InboxStore) -> None:
        self._inbox = inbox
        self._newest: OrderedDict[str, str] = OrderedDict()
        self._written_at: dict[str, float] = {}
        self._is_paused = False
        self._gaps: set[str] = set()
        self._waiting: set[str] = set()

    async def record_message(
        self, team_id: str, channel_id: str, ts: str, *, is_unaddressed: bool = False
    ) -> None:
        """A message of the channel was taken, or asks for nothing. Raises nothing."""
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
        """The agent heard of the message and left it alone, which is not to be decided again at a later start.
        Raises StorageUnavailable."""
        await self._inbox.claim(_ignored_key(dedupe_key))

    async def is_marked_ignored(self, dedupe_key: str) -> bool:
        """Raises StorageUnavailable."""
        return await self._inbox.is_claimed(_ignored_key(dedupe_key))

    def pause(self) -> None:
        """From now on messages may be missed: no mark moves until `open` says where the gaps are."""
        self._is_paused = True

    async def resume(self, gaps: Collection[str]) -> None:
        """The marks of all channels move again but those of the gaps, which `fill` ends one by one. Raises nothing."""
        self._gaps = set(gaps)
        self._is_paused = False
        waiting, self._waiting = self._waiting - self._gaps, set()
        for scope in waiting & self._newest.keys():
            await self._write(scope)

    def unpause(self) -> None:
        """Nothing was missed after all."""
        self._is_paused = False

    async def close_gap(self, scope: str, ts: str = "") -> None:
        """The channel was read up to `ts`, or is not going to be. Raises nothing."""
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

    async def _write(self, scope: str) -> None:
        self._written_at[scope] = time.monotonic()
        try:
            await self._inbox.forward(PLATFORM, scope, self._newest[scope])
        except StorageUnavailable as error:
            # the message itself is stored: a mark that is left behind costs only another look at it
            log.info("slack: how far %s was heard is not stored: %s", scope, error)


def _ignored_key(dedupe_key: str) -> str:
    return f"{dedupe_key}:left"
