"""Backfill: reads the messages that were missed while the bot was offline."""

import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import discord
from discord.utils import time_snowflake

from bots.discord.address import ChannelLocation, locate_channel
from bots.discord.gateway.cursors import ChannelCursors
from bots.discord.permissions import CLOSED_CODES
from bots.inbound.actions import MISSED_SECONDS_MAX

log = logging.getLogger(__name__)

MESSAGES_MAX = 1000
"""Limit on missed messages read per channel, oldest first."""
UNSEEN_CHANNELS_MAX = 200
"""Limit on channels read whose messages the gateway does not report at start (direct messages, archived threads)."""

HandleMessage = Callable[[discord.Message], Awaitable[None]]
HandleClosed = Callable[[ChannelLocation, str], Awaitable[None]]


async def backfill_gap(
    client: discord.Client,
    handle_closed: HandleClosed,
    handle: HandleMessage,
    channel_cursors: ChannelCursors,
    channel_id: int,
    after: int,
) -> None:
    """Handles the channel's messages after the message id `after`, oldest first, and advances its cursor. Skips
    messages that are too old.

    Before that, closes a thread that is locked, because it may have been locked while the bot was offline."""
    channel = client.get_channel(channel_id)
    try:
        if channel is None:
            channel = await client.fetch_channel(channel_id)
        is_in_guild = isinstance(channel, discord.abc.GuildChannel | discord.Thread)
        channel_cursors.record_guild_of_channel(channel_id, channel.guild.id if is_in_guild else None)
        is_own = channel_cursors.is_on_own_shards(channel_id)
        if not (is_own and isinstance(channel, discord.abc.Messageable)):
            return
        if location := _locate_locked(channel):
            await handle_closed(location, CLOSED_CODES["locked"])
        count = 0
        eldest = time_snowflake(datetime.now(UTC) - timedelta(seconds=MISSED_SECONDS_MAX))
        start = discord.Object(max(after, eldest))
        history = channel.history(limit=MESSAGES_MAX, after=start, oldest_first=True)
        async for message in history:
            await handle(message)
            channel_cursors.advance(channel_id, message.id)
            count += 1
    except (discord.NotFound, discord.Forbidden):
        log.info("discord: channel %s cannot be read; nothing to backfill", channel_id)
        return
    if count:
        log.info("discord: backfilled %s messages in channel %s", count, channel_id)
    if count >= MESSAGES_MAX:
        log.warning("discord: channel %s had more than %s missed messages", channel_id, MESSAGES_MAX)


async def backfill_channels(client: discord.Client, channel_cursors: ChannelCursors) -> None:
    """Backfills every channel of this process that has messages after its cursor, or is a locked thread."""
    known = await channel_cursors.load()
    unseen: list[int] = []
    for channel_id, cursor in sorted(known.items(), key=lambda item: -item[1]):
        channel = client.get_channel(channel_id)
        if not isinstance(channel, discord.TextChannel | discord.Thread):  # its newest message is unknown
            if channel_cursors.is_on_own_shards(channel_id):
                unseen.append(channel_id)
        elif (channel.last_message_id or channel.id) > cursor or _locate_locked(channel):
            await _guarded(channel_cursors, channel_id)
        else:
            channel_cursors.mark_current(channel_id)
    for channel_id in unseen[:UNSEEN_CHANNELS_MAX]:
        await _guarded(channel_cursors, channel_id)


async def record_new_channels(guild: discord.Guild, channel_cursors: ChannelCursors) -> None:
    """Stores cursors for new channels and threads of a guild, so that even the first mention in a channel is
    backfilled.

    In a guild that has cursors, a new channel was opened while the bot was offline, or nobody has written in it. Its
    cursor is the newest message that the bot has handled in the guild. In a new guild, earlier messages are not
    read."""
    known = await channel_cursors.load()
    channels = (*guild.text_channels, *guild.threads)
    heard = max((known.get(one.id, 0) for one in channels), default=0)
    for channel in channels:
        if channel.id in known:
            continue
        channel_cursors.record_guild_of_channel(channel.id, guild.id)
        newest = channel.last_message_id or channel.id
        channel_cursors.advance(channel.id, max(channel.id, heard) if heard else newest)
        if not heard:
            channel_cursors.mark_current(channel.id)


async def _guarded(channel_cursors: ChannelCursors, channel_id: int) -> None:
    try:
        await channel_cursors.fill_gap(channel_id)
    except Exception:  # continue with the other channels
        log.exception("discord: backfilling channel %s failed; retrying", channel_id)
        channel_cursors.schedule_retry(channel_id)


def _locate_locked(channel: object) -> ChannelLocation | None:
    """Returns the location of a locked thread, or None for any other channel."""
    is_locked = isinstance(channel, discord.Thread) and channel.locked
    return locate_channel(channel, None) if is_locked else None
