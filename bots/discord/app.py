"""The Discord side of the program: one client, connected and kept connected."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from bots.discord.gateway import backfill, client
from bots.discord.gateway.client import tolerate_malformed_events
from bots.discord.gateway.cursors import ChannelCursors, CursorStore
from bots.discord.gateway.events import EventHandler
from bots.discord.interactions import commands
from bots.discord.interactions.controls import AskControl, RunControl, handle_form_submit
from bots.discord.interactions.responses import InteractionHandler
from bots.discord.limits import FILE_BYTES_DEFAULT
from bots.discord.rest.client import RestClient, get_text
from bots.discord.rest.files import DiscordFiles
from bots.discord.rest.thread_history import DiscordThreadHistory
from bots.discord.rest.thread_opener import ThreadOpener
from bots.discord.surface import DiscordSurface
from bots.inbound.receiver import Receive
from bots.settings.discord import Shards
from core.domain.errors import ConfigurationError, SurfaceError
from core.tasks import cancel, spawn

LOGIN_REFUSED = (
    "Discord refused the bot token: set THREADHAND_DISCORD_TOKEN to the token of your bot."
)
INTENT_MISSING = (
    "Discord refuses the message content intent: switch on “Message Content Intent” for the bot in "
    "the Discord developer portal (Bot, Privileged Gateway Intents)."
)
AUTHENTICATION_FAILED_CODE = 4004
SHARD_CODES = (4010, 4011)
"""No such shard; too many servers for so few shards."""


def describe_close_code(code: int, shards: Shards | None) -> str:
    """For a connection that Discord closed with a code after which there is no reconnecting."""
    if code == AUTHENTICATION_FAILED_CODE:
        return LOGIN_REFUSED
    if code in SHARD_CODES and shards is not None:
        return (
            f"Discord does not take {shards.count} shards: raise the number behind the / of "
            "THREADHAND_DISCORD_SHARDS, the same for every process."
        )
    return f"Discord closed the connection for good, with code {code}."


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


def gateway_intents() -> discord.Intents:
    """What the gateway should tell: messages with their content, and reactions."""
    return discord.Intents(
        guilds=True,
        guild_messages=True,
        dm_messages=True,
        guild_reactions=True,
        dm_reactions=True,
        message_content=True,
    )


class GatewayClient(discord.AutoShardedClient):
    """discord.py's client with our ears, in the shards given or all that Discord asks for. Logs what handlers raise."""

    def __init__(
        self,
        receive: Receive,
        cursors: CursorStore,
        agents: Mapping[str, str],
        trace: aiohttp.TraceConfig | None = None,
        shards: Shards | None = None,
    ) -> None:
        # there is no voice here, so its missing libraries are no news
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=gateway_intents(),
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
        self.rest = RestClient(self.http)
        tolerate_malformed_events(self, self.rest)
        self.thread_opener = ThreadOpener(self.rest)
        self.channel_cursors = ChannelCursors(cursors, self._fill, shards=shards)
        self.event_handler = EventHandler(
            self, receive, self.rest, self.thread_opener, self.channel_cursors
        )
        self.interactions = InteractionHandler(receive, self.thread_opener, self.channel_cursors)
        self.tree = commands.build_command_tree(self, self.interactions, agents)
        self.add_dynamic_items(AskControl, RunControl)
        self.left: Callable[[str, str], Awaitable[None]] | None = None
        self._was_ready = False

    async def setup_hook(self) -> None:
        try:
            if await commands.sync_commands(self.tree, self.rest, self.application_id or 0):
                log.info("the slash commands were registered anew")
        except SurfaceError as error:
            log.warning("the slash commands could not be registered: %s", error)

    async def on_connect(self) -> None:
        self.channel_cursors.reset()

    async def on_ready(self) -> None:
        """Once all shards are there; later again only where there is a single one."""
        self._was_ready = True
        await backfill.backfill_channels(self, self.channel_cursors)

    async def on_shard_ready(self, _shard_id: int) -> None:
        if self._was_ready:
            await backfill.backfill_channels(self, self.channel_cursors)

    async def on_guild_available(self, guild: discord.Guild) -> None:
        await backfill.record_new_channels(guild, self.channel_cursors)

    async def on_guild_remove(self, guild: discord.Guild) -> None:
        if self.left is not None:
            await self.left("discord", str(guild.id))

    async def on_guild_join(self, guild: discord.Guild) -> None:
        log.info("discord: the bot was added to server %s", guild.id)
        await backfill.record_new_channels(guild, self.channel_cursors)

    async def on_thread_create(self, thread: discord.Thread) -> None:
        self.thread_opener.opened(str(thread.id))

    async def on_message(self, message: discord.Message) -> None:
        await self.event_handler.message(message)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        await self.event_handler.edited(payload)

    async def on_raw_message_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        await self.event_handler.deleted(payload)

    async def on_raw_reaction_add(self, payload: discord.RawReactionActionEvent) -> None:
        await self.event_handler.reacted(payload)

    async def on_interaction(self, interaction: discord.Interaction[discord.Client]) -> None:
        if interaction.type is discord.InteractionType.modal_submit:
            await handle_form_submit(interaction, self.interactions)

    async def on_error(self, event_method: str, /, *_args: object, **_kwargs: object) -> None:
        log.exception("%s failed", event_method)

    async def _fill(self, channel_id: int, after: int) -> None:
        await backfill.read_gap(
            self, self.event_handler.handle, self.channel_cursors, channel_id, after
        )


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
        cursors: CursorStore,
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
        self.client = GatewayClient(receive, cursors, agents or {}, trace, shards)
        self.client.event_handler.needs_roles = needs_roles
        self.client.left = left
        self.surface = DiscordSurface(
            self.client.rest,
            self.client.thread_opener,
            user_id=self._user_id,
            file_limit=self._file_limit,
        )
        self.files = DiscordFiles(self.client.rest, api_url=self._api_url)
        self.talk = DiscordThreadHistory(self.client.rest)
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
        await self.client.channel_cursors.close()
        if self._is_begun:  # before that there is nothing to close, and discord.py stumbles over it
            await self.client.close()
        if self._connection is not None:
            # a shard that never came tries for ever, and Python 3.11 loses a cancel that comes at the wrong moment
            while (await asyncio.wait({self._connection}, timeout=CLOSE_SECONDS))[1]:
                self._connection.cancel()
            client.stop_heartbeat_threads(self.client)
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
        Route.BASE = _api_base_url(self._api_url) if self._api_url else BUILT_IN_BASE
        try:
            await self.client.login(self._token)
        except discord.LoginFailure as error:
            raise ConfigurationError(LOGIN_REFUSED) from error
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            raise self._unreachable() from error

    async def _gateway(self) -> URL:
        """A local server says itself where its gateway is."""
        if not self._api_url:
            return BUILT_IN_GATEWAY
        try:
            return URL(get_text(await self.client.rest.call("GET", "/gateway/bot"), "url"))
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
                return INTENT_MISSING
            except discord.ConnectionClosed as error:
                return describe_close_code(error.code, self._shards)
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


def _api_base_url(api_url: str) -> str:
    """The address of the API; a bare host stands for its usual path."""
    url = URL(api_url)
    return str(url.with_path(API_PATH) if url.path in ("", "/") else url).rstrip("/")
