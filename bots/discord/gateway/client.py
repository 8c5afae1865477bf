"""The gateway client: discord.py's client with our event handlers, hardened against malformed events."""

import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp
import discord
from discord.gateway import KeepAliveHandler

from bots.discord.address import ChannelLocation
from bots.discord.gateway import backfill, malformed_payloads
from bots.discord.gateway.cursors import ChannelCursors
from bots.discord.gateway.events import EventHandler
from bots.discord.interactions import commands
from bots.discord.interactions.controls import handle_interaction
from bots.discord.interactions.responses import InteractionHandler
from bots.discord.permissions import CLOSED_CODES
from bots.discord.rest.client import RestClient
from bots.discord.rest.thread_opener import ThreadOpener
from bots.inbound.actions import Receive
from bots.inbound.receiver import SuggestValues
from bots.inbound.retry_buffer import RetryBuffer
from bots.settings.discord import Shards
from core.domain.errors import SurfaceError
from core.stores import InboundCursors

log = logging.getLogger(__name__)

RATE_LIMIT_SECONDS_MAX = 30.0
CACHED_MESSAGES_MAX = 500
GUILD_READY_SECONDS = 0.4
"""discord.py is ready once no new guild has arrived for this long. Later guilds are still added."""


def gateway_intents() -> discord.Intents:
    """Returns the intents for the events that the bot needs: messages with their content, and reactions."""
    return discord.Intents(
        guilds=True,
        guild_messages=True,
        dm_messages=True,
        guild_reactions=True,
        dm_reactions=True,
        message_content=True,
    )


def drop_message_content_intent(client: discord.Client) -> None:
    """Leaves out the message content intent when the client connects again."""
    client._connection._intents.message_content = False  # noqa: SLF001 - `intents` is a copy # pyright: ignore[reportPrivateUsage]


class GatewayClient(discord.AutoShardedClient):
    """discord.py's client with our event handlers. Logs the exceptions of handlers.

    Connects `shards`, or if None, all shards that Discord recommends."""

    def __init__(
        self,
        receive: Receive,
        cursors: InboundCursors,
        suggest: SuggestValues | None = None,
        trace: aiohttp.TraceConfig | None = None,
        shards: Shards | None = None,
    ) -> None:
        # turn off warnings about missing voice libraries, because the bot does not use voice
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=gateway_intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            max_ratelimit_timeout=RATE_LIMIT_SECONDS_MAX,
            max_messages=CACHED_MESSAGES_MAX,
            guild_ready_timeout=GUILD_READY_SECONDS,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            http_trace=trace,  # pyright: ignore[reportArgumentType] - None is its default
            shard_ids=shards and shards.numbers,  # pyright: ignore[reportArgumentType] - the same
            shard_count=shards and shards.count,
        )
        self.rest = RestClient(self.http)
        malformed_payloads.tolerate_malformed_payloads(self, self.rest)
        self.thread_opener = ThreadOpener(self.rest)
        self.channel_cursors = ChannelCursors(cursors, self._read_gap, shards=shards)
        self.kept_events = RetryBuffer("discord")
        self.event_handler = EventHandler(
            self, receive, self.rest, self.thread_opener, self.channel_cursors, self.kept_events
        )
        # discord.py finds handlers by the names of events
        self.on_message = self.event_handler.on_message
        self.on_raw_message_edit = self.event_handler.on_edit
        self.on_raw_message_delete = self.event_handler.on_delete
        self.on_raw_bulk_message_delete = self.event_handler.on_bulk_delete
        self.on_raw_reaction_add = self.event_handler.on_reaction
        self.interactions = InteractionHandler(receive, self.thread_opener, self.channel_cursors, suggest)
        self.tree = commands.build_command_tree(self, self.interactions)
        self.on_uninstall: Callable[[str, str], Awaitable[None]] | None = None
        self._was_ready = False

    async def setup_hook(self) -> None:
        try:
            if await commands.sync_commands(self.tree, self.rest, self.application_id or 0):
                log.info("the slash commands were updated")
        except SurfaceError as error:
            log.warning("the slash commands could not be registered: %s", error)

    async def on_connect(self) -> None:
        self.channel_cursors.start_session()
        self.thread_opener.start_session()

    async def on_ready(self) -> None:
        """Called by discord.py once all shards are ready. If there is only one shard, also called after each new
        session."""
        self._was_ready = True
        user_id = self.user.id if self.user else 0
        log.info("discord: connected as %s; servers: %s", user_id, len(self.guilds))
        await self._backfill_channels()

    async def on_shard_ready(self, _shard_id: int) -> None:
        if self._was_ready:
            await self._backfill_channels()

    async def on_guild_available(self, guild: discord.Guild) -> None:
        work = partial(backfill.record_new_channels, guild, self.channel_cursors)
        await self.kept_events.handle_or_keep(str(guild.id), f"channels:{guild.id}", work)

    async def on_guild_remove(self, guild: discord.Guild) -> None:
        if self.on_uninstall is not None:
            uninstall = partial(self.on_uninstall, "discord", str(guild.id))
            await self.kept_events.handle_or_keep(str(guild.id), f"guild remove:{guild.id}", uninstall)

    async def on_guild_join(self, guild: discord.Guild) -> None:
        log.info("discord: the bot was added to server %s", guild.id)
        await self.on_guild_available(guild)

    async def on_thread_create(self, thread: discord.Thread) -> None:
        self.thread_opener.mark_open(str(thread.id))

    async def on_raw_thread_update(self, payload: discord.RawThreadUpdateEvent) -> None:
        if payload.data["thread_metadata"].get("locked"):
            await self.event_handler.on_thread_closed(_locate_thread(payload), CLOSED_CODES["locked"])
        else:
            self.thread_opener.mark_closed(str(payload.thread_id), "")

    async def on_raw_thread_delete(self, payload: discord.RawThreadDeleteEvent) -> None:
        await self.event_handler.on_thread_closed(_locate_thread(payload), CLOSED_CODES["deleted"])

    async def on_interaction(self, interaction: discord.Interaction[discord.Client]) -> None:
        await handle_interaction(interaction, self.interactions)

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        log.exception("%s failed", event_method)

    async def _backfill_channels(self) -> None:
        work = partial(backfill.backfill_channels, self, self.channel_cursors)
        await self.kept_events.handle_or_keep("all channels", "backfill", work)

    async def _read_gap(self, channel_id: int, after: int) -> None:
        await backfill.backfill_gap(
            self,
            self.event_handler.on_thread_closed,
            partial(self.event_handler.handle_message, is_missed=True),
            self.channel_cursors,
            channel_id,
            after,
        )


def _locate_thread(payload: discord.RawThreadUpdateEvent | discord.RawThreadDeleteEvent) -> ChannelLocation:
    return ChannelLocation(
        kind="thread",
        channel_id=payload.thread_id,
        guild_id=payload.guild_id,
        parent_id=payload.parent_id,
        is_private=payload.thread_type is discord.ChannelType.private_thread,
    )


async def close_unregistered_shards(client: discord.Client) -> None:
    """Closes the connections that the client's `close` misses, and stops their heartbeat threads.

    discord.py starts the heartbeat thread of a connection before it registers the connection after IDENTIFY, for which
    each shard waits five seconds. Without this function, the thread would outlive the event loop, and the connection
    would stay open."""
    for thread in threading.enumerate():
        if not isinstance(thread, KeepAliveHandler):
            continue
        if thread.ws._dispatch == client.dispatch:  # noqa: SLF001 - no public attribute names the client # pyright: ignore[reportPrivateUsage]
            thread.stop()
            await thread.ws.socket.close()
