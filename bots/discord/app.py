"""The Discord app: connects one bot to Discord and keeps it connected."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from yarl import URL

from bots.discord.gateway.client import GatewayClient, close_unregistered_shards, drop_message_content_intent
from bots.discord.limits import FILE_BYTES_DEFAULT
from bots.discord.rest.client import get_text
from bots.discord.rest.files import DiscordFiles
from bots.discord.rest.thread_history import DiscordThreadHistory
from bots.discord.surface import DiscordSurface
from bots.inbound.actions import Admits, Receive
from bots.inbound.receiver import SuggestValues
from bots.inbound.schedules import TriggerEventHandler
from bots.settings.discord import Shards
from core.domain.actions import ActorContext
from core.domain.errors import ConfigurationError, SurfaceError, SurfaceRefused, TokenRefused
from core.domain.threads import Address
from core.stores import InboundCursors
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

API_PATH = "/api/v10"
CLOSE_SECONDS = 1.0
RECONNECT_SECONDS = 1.0
RECONNECT_SECONDS_MAX = 60.0
BUILT_IN_BASE = Route.BASE
BUILT_IN_GATEWAY = DiscordWebSocket.DEFAULT_GATEWAY
LOGIN_REFUSED = "Discord refused the bot token: set THREADHAND_DISCORD_TOKEN to the token of your bot."
INTENT_MISSING = (
    "discord: the message content intent is refused, so only mentions, direct messages and commands are served: "
    "switch on “Message Content Intent” for the bot in the Discord developer portal (Bot, Privileged Gateway Intents) "
    "and restart the program"
)
AUTHENTICATION_FAILED_CODE = 4004
UNKNOWN_MEMBER, UNKNOWN_USER = "10007", "10013"
SHARD_CODES = (4010, 4011)
"""Discord's close codes for an invalid shard and for required sharding."""


class DiscordApp:
    """Connects to Discord and stays connected.

    `api_url` replaces Discord's address with that of a local server. discord.py keeps addresses in class attributes, so
    the setting applies to the whole process: one process talks to one Discord. `suggest` returns suggested values while
    users fill in a command. `shards` are the shards that this process connects. It receives no events of other guilds.
    `on_uninstall` is called with the platform and the guild id after the bot was removed from a guild."""

    def __init__(
        self,
        *,
        token: str,
        receive: Receive,
        hear: TriggerEventHandler | None = None,
        cursors: InboundCursors,
        api_url: str | None = None,
        suggest: SuggestValues | None = None,
        trace: aiohttp.TraceConfig | None = None,
        needs_roles: bool = False,
        admits: Admits | None = None,
        on_uninstall: Callable[[str, str], Awaitable[None]] | None = None,
        shards: Shards | None = None,
    ) -> None:
        self._token = token
        self._api_url = None if api_url == BUILT_IN_BASE else api_url
        self._shards = shards
        self.client = GatewayClient(receive, cursors, suggest, trace, shards)
        self.client.event_handler.needs_roles = needs_roles
        self.client.event_handler.admits = admits
        self.client.event_handler.hear = hear
        self.client.on_uninstall = on_uninstall
        self.surface = DiscordSurface(
            self.client.rest,
            self.client.thread_opener,
            user_id=self._user_id,
            file_limit=self._file_limit,
            was_open=self.client.channel_cursors.has_cursor,
            client=self.client,
        )
        self.files = DiscordFiles(self.client.rest, api_url=self._api_url)
        self.thread_history = DiscordThreadHistory(self.client.rest, self.client)
        self._connection: asyncio.Task[str | None] | None = None
        self._has_logged_in = False
        self._is_closing = False

    async def fetch_actor_context(self, address: Address, person_id: str) -> ActorContext:
        """Returns what the server reports about a user. Raises SurfaceError."""
        if address.is_direct:
            return ActorContext(is_direct=True)
        try:
            member = await self.client.rest.call(
                "GET", "/guilds/{guild_id}/members/{user_id}", guild_id=address.workspace_id, user_id=person_id
            )
        except SurfaceRefused as refused:
            if refused.code in (UNKNOWN_MEMBER, UNKNOWN_USER):
                return ActorContext(has_left=True)
            raise
        roles = member.get("roles") if isinstance(member, dict) else None
        held = map(str, roles) if isinstance(roles, list) else ()
        return ActorContext(groups=frozenset({address.workspace_id, *held}))  # everyone has the role of this id

    async def is_connected(self) -> bool:
        """Whether the gateway connection of every shard is up."""
        shards = self.client.shards.values()
        return self.client.is_ready() and not any(shard.is_closed() for shard in shards)

    async def start(self) -> None:
        """Logs in and returns once events arrive. If that fails, closes the app and raises ConfigurationError."""
        try:
            await self._login()
            DiscordWebSocket.DEFAULT_GATEWAY = BUILT_IN_GATEWAY
            if self._api_url:  # a local server reports the address of its gateway in its API
                try:
                    answer = await self.client.rest.call("GET", "/gateway/bot")
                except SurfaceError as error:
                    raise self._unreachable() from error
                DiscordWebSocket.DEFAULT_GATEWAY = URL(get_text(answer, "url"))
            self._connection = spawn(self._connect(), name="discord gateway")
            ready = spawn(self.client.wait_until_ready(), name="discord ready")
            try:
                await asyncio.wait({ready, self._connection}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel(ready)
            if self._connection.done():
                await self.wait_until_closed()
        except BaseException:
            await self.close()
            raise

    async def wait_until_closed(self) -> None:
        """Returns after the connection was closed. Raises ConfigurationError if Discord permanently refuses the
        connection."""
        if self._connection is None:
            return
        problem = await asyncio.shield(self._connection)
        if problem is not None:
            raise ConfigurationError(problem)

    async def close(self) -> None:
        """Disconnects. Safe to call in any state."""
        self._is_closing = True
        await self.client.kept_events.close()
        if self._has_logged_in:  # discord.py fails if it is closed before it is opened
            await self.client.close()
        if self._connection is not None:
            # repeat the cancellation: a shard that never connected retries forever, and Python 3.11 can lose one
            while (await asyncio.wait({self._connection}, timeout=CLOSE_SECONDS))[1]:
                self._connection.cancel()
            await close_unregistered_shards(self.client)
        await self.client.channel_cursors.close()
        await self.files.close()

    async def sign_in(self) -> None:
        """Logs in without connecting to the gateway, for a process that only reads files and threads."""
        try:
            await self._login()
        except BaseException:
            await self.close()
            raise

    async def _login(self) -> None:
        self._has_logged_in = True
        Route.BASE = BUILT_IN_BASE
        if self._api_url:
            url = URL(self._api_url)
            Route.BASE = str(url.with_path(API_PATH) if url.path in ("", "/") else url).rstrip("/")
        try:
            await self.client.login(self._token)
        except discord.LoginFailure as error:
            raise TokenRefused(LOGIN_REFUSED) from error
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            raise self._unreachable() from error

    def _unreachable(self) -> ConfigurationError:
        also_check = " and THREADHAND_DISCORD_API_URL" if self._api_url else ""
        return ConfigurationError(
            f"Discord cannot be reached at {URL(Route.BASE).host}: check the network{also_check}."
        )

    async def _connect(self) -> str | None:
        """Runs until closed. Returns a sentence for the operator if Discord forbids the bot to reconnect.

        discord.py reconnects by itself, but gives up if a gateway sends something that it cannot parse."""
        pause = RECONNECT_SECONDS
        while not self._is_closing:
            began = time.monotonic()
            try:
                if self.client.is_closed():
                    self.client.clear()
                    # `close` closed the connector, and `clear` does not replace it
                    self.client.http.connector = discord.utils.MISSING
                    await self._login()
                await self.client.connect()
            except discord.PrivilegedIntentsRequired:
                log.warning(INTENT_MISSING)
                drop_message_content_intent(self.client)
                self.client.event_handler.sees_all_content = False
            except discord.ConnectionClosed as error:
                return describe_close_code(error.code, self._shards)
            except Exception:  # treat network, TLS and discord.py errors alike: connect again
                if time.monotonic() - began > RECONNECT_SECONDS_MAX:  # it worked in between
                    pause = RECONNECT_SECONDS
                log.exception("the connection to Discord broke; connecting again in %s s", pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_SECONDS_MAX)
        return None

    def _user_id(self) -> str:
        user = self.client.user
        return str(user.id) if user else ""

    def _file_limit(self, address: Address) -> int:
        guild_id = address.workspace_id
        guild = self.client.get_guild(int(guild_id)) if guild_id.isdigit() else None
        return guild.filesize_limit if guild else FILE_BYTES_DEFAULT


def describe_close_code(code: int, shards: Shards | None) -> str:
    """Returns an explanation for the operator of a close code after which the bot must not reconnect."""
    if code == AUTHENTICATION_FAILED_CODE:
        return LOGIN_REFUSED
    if code in SHARD_CODES and shards is not None:
        return (
            f"Discord refuses {shards.count} shards: raise the number after the / in "
            "THREADHAND_DISCORD_SHARDS, to the same value in every process."
        )
    return f"Discord closed the connection for good, with code {code}."
