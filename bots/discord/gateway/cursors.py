"""Channel cursors, which ensure that a channel's missed messages are handled before newer messages."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from bots.inbound.cursor_writer import CursorWriter
from bots.settings.discord import Shards
from core.stores import InboundCursors
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

PLATFORM = "discord"
RETRY_SECONDS_MAX = 60.0

ReadGap = Callable[[int, int], Awaitable[None]]
"""Handles a channel's messages after a message id. The arguments are the channel id and the message id."""


class ChannelCursors:
    """Handles the messages of each channel one at a time, and keeps a cursor for each channel.

    After `start_session`, each channel with a cursor is backfilled before its next message is handled. A message that
    arrives twice has the same dedupe key. The cursor advances only after a message was handled, and never past a gap.

    With `shards`, cursors are stored with their guild ids, so that each process backfills only its own channels."""

    def __init__(
        self, store: InboundCursors, read_gap: ReadGap, *, retry_seconds: float = 2.0, shards: Shards | None = None
    ) -> None:
        self._store = store
        self._writer = CursorWriter(store, PLATFORM)
        self._read_gap = read_gap
        self._shards = shards
        self._guilds: dict[int, int] = {}
        self._locks = WeakValueDictionary[int, asyncio.Lock]()
        self._current: set[int] = set()
        self._known: dict[int, int] = {}
        self._floors: dict[int, int] = {}
        self._retries: dict[int, asyncio.Task[None]] = {}
        self._retry_seconds = retry_seconds
        self._loaded = asyncio.Lock()
        self._is_loaded = False

    def start_session(self) -> None:
        """Marks every channel as possibly having a gap. Call synchronously when a new gateway session starts."""
        self._current.clear()

    @asynccontextmanager
    async def handle_in_order(self, channel_id: int, message_id: int) -> AsyncGenerator[None]:
        """Context manager: inside the block, no other message of the channel is handled. Advances the cursor at the
        end."""
        async with self.lock_of_channel(channel_id):
            try:
                await self._fill_gap(channel_id)
                yield
            except BaseException:
                # the message could not be handled: record a gap before it, and retry until the gap is filled
                self._current.discard(channel_id)
                self._floors.setdefault(channel_id, message_id - 1)
                self.schedule_retry(channel_id)
                raise
            self.advance(channel_id, message_id)

    def lock_of_channel(self, channel_id: int) -> asyncio.Lock:
        """Returns the channel's lock. While it is held, no other task handles messages of the channel."""
        return self._locks.setdefault(channel_id, asyncio.Lock())

    async def record_unaddressed(self, channel_id: int, message_id: int) -> None:
        """Advances the cursor for a message that is not for the agent, so that backfills stay short. Does nothing while
        a gap before the message is being retried in the background."""
        if channel_id not in self._retries:
            async with self.handle_in_order(channel_id, message_id):
                pass

    def advance(self, channel_id: int, message_id: int) -> None:
        """Advances a channel's cursor to the message. Does nothing if the cursor is already past it."""
        if message_id <= self._known.get(channel_id, 0):
            return
        guild_id = self._guilds.get(channel_id)
        scope = str(channel_id) if None in (self._shards, guild_id) else f"{guild_id}/{channel_id}"
        self._writer.advance(scope, str(message_id))
        self._known[channel_id] = message_id

    async def record_thread(self, thread_id: int, guild_id: int | None) -> None:
        """Gives a thread that was just opened a cursor, unless it already has one. Stores the cursor immediately,
        because a thread without one would be opened again after it is deleted."""
        self.record_guild_of_channel(thread_id, guild_id)
        async with self.lock_of_channel(thread_id):
            self.advance(thread_id, thread_id)
        await self._writer.flush()

    async def load(self) -> dict[int, int]:
        """Returns the cursors by channel id. Reads the store once."""
        async with self._loaded:
            if not self._is_loaded:
                stored = await self._store.cursors(PLATFORM)
                for scope, cursor in stored.items():
                    guild, _, channel = scope.rpartition("/")
                    if channel.isdigit() and cursor.isdigit():
                        channel_id = int(channel)
                        if guild.isdigit():
                            self._guilds[channel_id] = int(guild)
                        self._known[channel_id] = max(self._known.get(channel_id, 0), int(cursor))
                self._is_loaded = True
        return dict(self._known)

    async def has_cursor(self, channel_id: int) -> bool:
        """Whether this or another process has ever received messages of the channel."""
        if channel_id in self._known:
            return True
        scopes = await self._store.cursors(PLATFORM)
        return any(scope.rpartition("/")[2] == str(channel_id) for scope in scopes)

    async def fill_gap(self, channel_id: int) -> None:
        """Backfills a channel if it has a gap."""
        async with self.lock_of_channel(channel_id):
            await self._fill_gap(channel_id)

    def record_guild_of_channel(self, channel_id: int, guild_id: int | None) -> None:
        """Sets the channel's guild, or None for direct messages. Call this before the channel's cursor is moved."""
        self._guilds[channel_id] = guild_id or 0

    def is_on_own_shards(self, channel_id: int) -> bool:
        """Whether this process receives the channel's messages. True if the channel's guild is not known yet."""
        guild_id = self._guilds.get(channel_id)
        return self._shards is None or guild_id is None or self._shards.receives_guild(guild_id)

    def mark_current(self, channel_id: int) -> None:
        """Records that the channel has no gap."""
        self._current.add(channel_id)

    def schedule_retry(self, channel_id: int) -> None:
        """Retries in the background until the channel's gap is filled."""
        if channel_id not in self._retries:
            self._retries[channel_id] = spawn(self._retry(channel_id), name=f"discord retry {channel_id}")

    async def close(self) -> None:
        """Stores the cursors and cancels retries. The next start backfills those channels."""
        await cancel(*self._retries.values())
        await self._writer.flush()

    async def _retry(self, channel_id: int) -> None:
        pause = self._retry_seconds
        try:
            while channel_id not in self._current:
                await asyncio.sleep(pause)
                pause = min(pause * 2, RETRY_SECONDS_MAX)
                try:
                    await self.fill_gap(channel_id)
                except Exception:  # retry until the channel's gap is filled
                    log.exception("discord: channel %s cannot be backfilled yet", channel_id)
        finally:
            self._retries.pop(channel_id, None)

    async def _fill_gap(self, channel_id: int) -> None:
        if channel_id in self._current:
            return
        cursor = (await self.load()).get(channel_id, self._floors.get(channel_id))
        self._current.add(channel_id)
        if cursor is None:
            return
        try:
            await self._read_gap(channel_id, cursor)
        except BaseException:
            self._current.discard(channel_id)
            raise
        self._floors.pop(channel_id, None)
