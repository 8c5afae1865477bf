"""The Discord side of the program: one client, connected and kept connected."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from bots.discord.gateway import backfill, close_reasons, heartbeats
from bots.discord.gateway.cursors import Cursors, Lanes
from bots.discord.gateway.events import Listener
from bots.discord.gateway.malformed_events import forgive
from bots.discord.interactions import commands
from bots.discord.interactions.controls import AskControl, RunControl, form_submitted
from bots.discord.interactions.responses import Interactions
from bots.discord.limits import FILE_BYTES_DEFAULT
from bots.discord.rest.client import Rest, text_of
from bots.discord.rest.files import DiscordFiles
from bots.discord.rest.thread_history import DiscordTalk
from bots.discord.rest.thread_opener import Doors
from bots.discord.surface import DiscordSurface
from bots.inbound.receive import Receive
from bots.settings.shards import Shards
from core.domain.errors import ConfigurationError, SurfaceError
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

RATE_LIMIT_SECONDS_MAX = 30.0
MESSAGES_REMEMBERED = 500
GUILDS_SECONDS = 0.4
"""Without a new guild for so long, the list is taken as complete; a guild that comes later is known all the same."""
API_PATH = "/api/v10"
CLOSE_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
RECONNECT_SECONDS_MAX = 60.0
BUILT_IN_BASE = Route.BASE
BUILT_IN_GATEWAY = DiscordWebSocket.DEFAULT_GATEWAY


def intents() -> discord.Intents:
    """What the gateway should tell: messages with their content, and reactions."""
    return discord.Intents(
        guilds=True,
        guild_messages=True,
        dm_messages=True,
        guild_reactions=True,
        dm_reactions=True,
        message_content=True,
    )


class Client(discord.AutoShardedClient):
    """discord.py's client with our ears, in the shards given or all that Discord asks for. Logs what handlers raise."""

    def __init__(
        self,
        receive: Receive,
        cursors: Cursors,
        agents: Mapping[str, str],
        trace: aiohttp.TraceConfig | None = None,
        shards: Shards | None = None,
    ) -> None:
        # there is no voice here, so its missing libraries are no news
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            max_ratelimit_timeout=RATE_LIMIT_SECONDS_MAX,
            max_messages=MESSAGES_REMEMBERED,
            guild_ready_timeout=GUILDS_SECONDS,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            http_trace=trace,  # pyright: ignore[reportArgumentType] - None is its default
            shard_ids=shards and shards.numbers,  # pyright: ignore[reportArgumentType] - the same
            shard_count=shards and shards.count,
        )
        self.rest = Rest(self.http)
        forgive(self, self.rest)
        self.doors = Doors(self.rest)
        self.lanes = Lanes(cursors, self._fill, shards=shards)
        self.listener = Listener(self, receive, self.rest, self.doors, self.lanes)
        self.interactions = Interactions(receive, self.doors, self.lanes)
        self.tree = commands.build(self, self.interactions, agents)
        self.add_dynamic_items(AskControl, RunControl)
        self.left: Callable[[str, str], Awaitable[None]] | None = None
        self._was_ready = False

    async def setup_hook(self) -> None:
        try:
            if await commands.sync(self.tree, self.rest, self.application_id or 0):
                log.info("the slash commands were registered anew")
        except SurfaceError as error:
            log.warning("the slash commands could not be registered: %s", error)

    async def on_connect(self) -> None:
        self.lanes.reset()

    async def on_ready(self) -> None:
        """Once all shards are there; later again only where there is a single one."""
        self._was_ready = True
        await backfill.catch_up(self, self.lanes)

    async def on_shard_ready(self, _shard_id: int) -> None:
        if self._was_ready:
            await backfill.catch_up(self, self.lanes)

    async def on_guild_available(self, guild: discord.Guild) -> None:
        await backfill.remember(guild, self.lanes)

    async def on_guild_remove(self, guild: discord.Guild) -> None:
        if self.left is not None:
            await self.left("discord", str(guild.id))

    async def on_guild_join(self, guild: discord.Guild) -> None:
        log.info("discord: the bot was added to server %s", guild.id)
        await backfill.remember(guild, self.lanes)

    async def on_thread_create(self, thread: discord.Thread) -> None:
        self.doors.opened(str(thread.id))

    async def on_message(self, message: discord.Message) -> None:
        await self.listener.message(message)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        await self.listener.edited(payload)

    async def on_raw_message_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        await self.listener.deleted(payload)

    async def on_raw_reaction_add(self, payload: discord.RawReactionActionEvent) -> None:
        await self.listener.reacted(payload)

    async def on_interaction(self, interaction: discord.Interaction[discord.Client]) -> None:
        if interaction.type is discord.InteractionType.modal_submit:
            await form_submitted(interaction, self.interactions)

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        log.exception("%s failed", event_method)

    async def _fill(self, channel_id: int, after: int) -> None:
        await backfill.fill(self, self.listener.handle, self.lanes, channel_id, after)


class DiscordApp:
    """Connects to Discord and stays connected.

    `api_url` points to a local server in Discord's place. discord.py keeps its addresses in class attributes, so the
    setting holds for the whole process: one process talks to one Discord. `agents` are offered in menus, by name.
    `shards`: of the guilds on the others nothing is heard here.
    """

    def __init__(
        self,
        *,
        token: str,
        receive: Receive,
        cursors: Cursors,
        api_url: str | None = None,
        agents: Mapping[str, str] | None = None,
        trace: aiohttp.TraceConfig | None = None,
        needs_roles: bool = False,
        left: Callable[[str, str], Awaitable[None]] | None = None,
        shards: Shards | None = None,
    ) -> None:
        self._token = token
        self._api_url = None if api_url == BUILT_IN_BASE else api_url
        self._shards = shards
        self.client = Client(receive, cursors, agents or {}, trace, shards)
        self.client.listener.needs_roles = needs_roles
        self.client.left = left
        self.surface = DiscordSurface(
            self.client.rest, self.client.doors, user_id=self._user_id, file_limit=self._file_limit
        )
        self.files = DiscordFiles(self.client.rest, api_url=self._api_url)
        self.talk = DiscordTalk(self.client.rest)
        self._connection: asyncio.Task[str | None] | None = None
        self._is_begun = False
        self._is_closing = False

    @property
    def is_ready(self) -> bool:
        """Whether Discord's events arrive right now."""
        shards = self.client.shards.values()
        return self.client.is_ready() and not any(shard.is_closed() for shard in shards)

    async def start(self) -> None:
        """Logs in and returns once events arrive. Raises ConfigurationError, and is closed then."""
        try:
            await self._login()
            DiscordWebSocket.DEFAULT_GATEWAY = await self._gateway()
            self._connection = spawn(self._connect(), name="discord gateway")
            await self._ready()
        except BaseException:
            await self.close()
            raise

    async def wait(self) -> None:
        """Returns once the connection was closed. Raises ConfigurationError when Discord refuses it for good."""
        if self._connection is None:
            return
        problem = await asyncio.shield(self._connection)
        if problem is not None:
            raise ConfigurationError(problem)

    async def close(self) -> None:
        """Disconnects. Safe to call in any state."""
        self._is_closing = True
        await self.client.lanes.close()
        if self._is_begun:  # before that there is nothing to close, and discord.py stumbles over it
            await self.client.close()
        if self._connection is not None:
            # a shard that never came tries for ever, and Python 3.11 loses a cancel that comes at the wrong moment
            while (await asyncio.wait({self._connection}, timeout=CLOSE_SECONDS))[1]:
                self._connection.cancel()
            heartbeats.end(self.client)
        await self.files.close()

    async def sign_in(self) -> None:
        """Logs in and stays away from the gateway: for a process that only reads files and threads."""
        try:
            await self._login()
        except BaseException:
            await self.close()
            raise

    async def _login(self) -> None:
        self._is_begun = True
        Route.BASE = _base(self._api_url) if self._api_url else BUILT_IN_BASE
        try:
            await self.client.login(self._token)
        except discord.LoginFailure as error:
            raise ConfigurationError(close_reasons.LOGIN) from error
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            raise self._unreachable() from error

    async def _gateway(self) -> URL:
        """A local server says itself where its gateway is."""
        if not self._api_url:
            return BUILT_IN_GATEWAY
        try:
            return URL(text_of(await self.client.rest.call("GET", "/gateway/bot"), "url"))
        except SurfaceError as error:
            raise self._unreachable() from error

    def _unreachable(self) -> ConfigurationError:
        also = " and THREADHAND_DISCORD_API_URL" if self._api_url else ""
        return ConfigurationError(
            f"Discord cannot be reached at {URL(Route.BASE).host}: check the network{also}."
        )

    async def _ready(self) -> None:
        if self._connection is None:
            return
        ready = spawn(self.client.wait_until_ready(), name="discord ready")
        await asyncio.wait({ready, self._connection}, return_when=asyncio.FIRST_COMPLETED)
        await cancel(ready)
        if self._connection.done():
            await self.wait()

    async def _connect(self) -> str | None:
        """Runs until closed; answers the sentence for the operator when it may not go on.

        discord.py reconnects by itself, but gives up where a gateway sends what it cannot read.
        """
        pause = RECONNECT_SECONDS
        while not self._is_closing:
            try:
                if self.client.is_closed():
                    self.client.clear()
                    # it was closed with the rest, and `clear` leaves it so
                    self.client.http.connector = discord.utils.MISSING
                    await self._login()
                await self.client.connect()
            except discord.PrivilegedIntentsRequired:
                return close_reasons.INTENT
            except discord.ConnectionClosed as error:
                return close_reasons.closed(error.code, self._shards)
            except Exception:
                log.exception("the connection to Discord broke; connecting again in %s s", pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_SECONDS_MAX)
        return None

    def _user_id(self) -> str:
        user = self.client.user
        return str(user.id) if user else ""

    def _file_limit(self, workspace_id: str) -> int:
        guild = self.client.get_guild(int(workspace_id)) if workspace_id.isdigit() else None
        return guild.filesize_limit if guild else FILE_BYTES_DEFAULT


def _base(api_url: str) -> str:
    """The address of the API; a bare host stands for its usual path."""
    url = URL(api_url)
    return str(url.with_path(API_PATH) if url.path in ("", "/") else url).rstrip("/")
