"""Builds the configured chat platforms and their health checks."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yarl import URL

from bots.bootstrap.inbound import build_access_policy
from bots.bootstrap.observability import ObservabilityDeps, build_http_trace
from bots.bootstrap.stores import Stores
from bots.delivery.content import Notice
from bots.delivery.poster import DeliverySurface
from bots.inbound.home import GreetingsAndHome
from bots.inbound.receiver import ActionReceiver
from bots.inbound.schedules import TriggerEventHandler
from bots.settings import NO_SECRET, Settings
from bots.settings.discord import parse_shards
from bots.web.health import ReadinessCheck
from core.domain.actions import MEMBER, ActorContext
from core.domain.errors import ConfigurationError, SurfaceRefused, TokenRefused
from core.domain.ids import new_id
from core.domain.schedules import Firing, build_commands
from core.domain.threads import Address
from core.ports import ChatHistory, FileSource, OutgoingFile, Precondition
from core.stores import InboundCursors
from core.tasks import await_ungrouped
from core.web_access.guard import is_loopback

if TYPE_CHECKING:
    from bots.discord.app import DiscordApp
    from bots.slack.app import OnWorkspaceUninstall, SlackApp
    from bots.slack.install.routes import InstallFlow
    from bots.slack.install.tokens import TokenStore


log = logging.getLogger(__name__)

NO_PUBLIC_URL = (
    "People get no links to files, previews, ports and the browser: set THREADHAND_PUBLIC_URL to an address of the"
    " bot's HTTP server that they can open."
)


@dataclass(slots=True)
class Platforms:
    """The configured chat platforms. Each mapping has the platform name as its key and is filled before the start."""

    file_sources: dict[str, FileSource]
    surfaces: dict[str, DeliverySurface] = field(default_factory=dict[str, DeliverySurface])
    histories: dict[str, ChatHistory] = field(default_factory=dict[str, ChatHistory])
    slack: "SlackApp | None" = None
    discord: "DiscordApp | None" = None
    startup_findings: list[str] = field(default_factory=list[str])

    async def start(self, stack: AsyncExitStack, *, receives: bool) -> None:
        """Signs in to the platforms, and receives messages if `receives` is true. `stack` closes what was started.

        A platform that refuses its token is left out if the other one works, and is named in the startup findings.
        Raises ConfigurationError."""
        apps = {name: app for name, app in (("slack", self.slack), ("discord", self.discord)) if app is not None}
        refusals: dict[str, TokenRefused] = {}

        async def start_app(platform: str, app: "SlackApp | DiscordApp") -> None:
            stack.push_async_callback(app.close)
            try:
                await (app.start() if receives else app.sign_in())
            except TokenRefused as error:
                refusals[platform] = error

        async def start_apps() -> None:
            async with asyncio.TaskGroup() as group:
                for platform, app in apps.items():
                    group.create_task(start_app(platform, app), name=f"start of {platform}")

        await await_ungrouped(start_apps())
        for platform in filter(refusals.__contains__, apps):
            error = refusals[platform]
            if len(refusals) == len(apps):
                raise error
            self.slack = None if platform == "slack" else self.slack
            self.discord = None if platform == "discord" else self.discord
            for by_platform in (self.surfaces, self.file_sources, self.histories):
                by_platform.pop(platform, None)
            self.startup_findings.append(f"{platform.capitalize()} is off: {error}")

    async def upload(self, address: Address, file: OutgoingFile) -> object:
        """Posts a file into a thread, outside any run. Raises SurfaceError."""
        return await self._surface_at(address).upload(
            address, file, delivery_id=new_id(), precondition=_no_precondition
        )

    async def post_announcement(
        self, firing: Firing, text: str, *, may_be_posted: bool, precondition: Precondition
    ) -> str:
        """Posts the text about a firing into its thread, or into its channel, which opens a thread. Returns the
        message's id. Raises SurfaceError, or the exception of the precondition."""
        address, schedule = firing.address, firing.schedule
        if address.platform == "api":
            return address.thread_key or firing.firing_id
        notice = Notice(markdown=text, commands=build_commands(schedule.schedule_id) if schedule.timing.rule else {})
        return await self._post(
            address,
            notice,
            title=firing.title or schedule.task,
            delivery_id=firing.firing_id,
            may_be_posted=may_be_posted,
            precondition=precondition,
        )

    async def propose(self, address: Address, text: str, commands: Mapping[str, str], title: str) -> object:
        """Posts a card with a button for each of the commands, by label, into a thread, or into a channel, which opens
        a thread with that title. Raises SurfaceError."""
        return await self._post(address, Notice(markdown=text, commands=commands), title=title)

    async def _post(
        self,
        address: Address,
        notice: Notice,
        *,
        title: str,
        delivery_id: str = "",
        may_be_posted: bool = False,
        precondition: Precondition | None = None,
    ) -> str:
        """Posts into a thread, or into a channel, which opens a thread with that title. Returns the message's id."""
        delivery_id, precondition = delivery_id or new_id(), precondition or _no_precondition
        if not address.thread_key:
            return await self._app_at(address).surface.begin_thread(
                address,
                notice,
                title=title,
                delivery_id=delivery_id,
                may_be_posted=may_be_posted,
                precondition=precondition,
            )
        return await _post_once(
            self._surface_at(address), address, notice, delivery_id, may_be_posted, precondition=precondition
        )

    async def fetch_actor_context(self, address: Address, person_id: str) -> ActorContext:
        """Returns what the platform reports about a user now. Raises SurfaceError or StorageUnavailable."""
        return (
            MEMBER if address.platform == "api" else await self._app_at(address).fetch_actor_context(address, person_id)
        )

    async def send_direct_message(self, address: Address, person_id: str, text: str) -> None:
        """Posts Markdown to the user's direct messages or, if they take none, where the thread's own notices go. Raises
        SurfaceError."""
        if address.platform == "api":
            return
        places, last = list[Address](), SurfaceRefused("there is no place to post it", code="no_place")
        try:
            async for place in self._surface_at(address).fallback_addresses(address, person_id):
                places.insert(0, place)  # the direct message comes last, because a thread's notices are for all
        except SurfaceRefused as refused:
            last = refused
        for place in places or [address]:
            try:
                await self.post_notice(place, text)
            except SurfaceRefused as refused:
                last = refused
            else:
                return
        raise last

    async def post_notice(
        self, address: Address, text: str, *, delivery_id: str = "", may_be_posted: bool = False
    ) -> str:
        """Posts Markdown into a thread, outside any run, and returns the message's id. With `may_be_posted`, looks for
        a message with the delivery id first. Posts nothing over HTTP. Raises SurfaceError."""
        if address.platform == "api":
            return ""
        surface = self._surface_at(address)
        return await _post_once(surface, address, Notice(markdown=text), delivery_id or new_id(), may_be_posted)

    def _app_at(self, address: Address) -> "SlackApp | DiscordApp":
        app = {"slack": self.slack, "discord": self.discord}.get(address.platform)
        if app is None:
            raise SurfaceRefused("the platform is off", code="no_chat")
        return app

    def _surface_at(self, address: Address) -> DeliverySurface:
        if (surface := self.surfaces.get(address.platform)) is None:
            raise SurfaceRefused("this can be posted only in chats", code="no_chat")
        return surface


async def _no_precondition() -> None:
    return None


async def _post_once(
    surface: DeliverySurface,
    address: Address,
    notice: Notice,
    delivery_id: str,
    may_be_posted: bool,
    *,
    precondition: Precondition = _no_precondition,
) -> str:
    posted = await surface.find(address, delivery_id) if may_be_posted else None
    return posted or await surface.post(address, notice, delivery_id=delivery_id, precondition=precondition)


def without_incomplete_slack(settings: Settings) -> tuple[Settings, list[str]]:
    """If Slack is set up only in part, returns the settings without Slack, and a sentence about what is missing.
    Otherwise returns the settings unchanged, and no sentence."""
    try:
        _ = settings.slack_mode
    except ConfigurationError as error:
        secrets = ("bot_token", "app_token", "signing_secret", "client_secret")
        changes = {f"slack_{name}": NO_SECRET for name in secrets}
        without = settings.model_copy(update={**changes, "slack_client_id": ""})
        return without, [f"Slack is off: {error} `threadhand setup` asks for it."]
    return settings, []


def add_slack(
    platforms: Platforms,
    settings: Settings,
    receiver: ActionReceiver,
    observability: ObservabilityDeps,
    stores: Stores,
    on_uninstall: "OnWorkspaceUninstall",
    hear: TriggerEventHandler,
) -> None:
    """Adds Slack to `platforms` if it is configured. Raises ConfigurationError if its settings are incomplete."""
    if settings.slack_mode == "off":
        return
    # imported only if Slack is configured, because importing the SDK takes 0.3 s
    from bots.slack.app import SlackApp

    tokens, install = build_slack_installs(settings, stores) if settings.slack_client_id else (None, None)
    app = platforms.slack = SlackApp(
        bot_token=settings.slack_bot_token.get_secret_value(),
        app_token=settings.slack_app_token.get_secret_value() or None,
        signing_secret=settings.slack_signing_secret.get_secret_value() or None,
        api_url=settings.slack_api_url,
        receive=receiver.receive,
        hear=hear,
        admits=receiver.admits,
        conversations=stores.conversations,
        trace=build_http_trace("slack", observability.metrics.observe_platform_call),
        groups=settings.allowed_roles,
        tokens=tokens,
        install=install,
        limiter=observability.limiter,
        on_uninstall=on_uninstall,
        inbox=stores.inbox,
        greetings=GreetingsAndHome(
            claim=stores.inbox.claim_key,
            commands=receiver.commands,
            policy=receiver.policy,
            default_modes=receiver.follow_modes,
            startup_findings=platforms.startup_findings,
        ),
    )
    platforms.surfaces["slack"] = app.surface
    platforms.file_sources["slack"] = app.files
    platforms.histories["slack"] = app.thread_history


def add_discord(
    platforms: Platforms,
    settings: Settings,
    receiver: ActionReceiver,
    cursors: InboundCursors,
    observability: ObservabilityDeps,
    on_uninstall: "OnWorkspaceUninstall",
    hear: TriggerEventHandler,
) -> None:
    """Adds Discord to `platforms` if it is configured."""
    if not settings.discord_token.get_secret_value():
        return
    # imported only if Discord is configured, because importing the SDK takes 0.3 s
    from bots.discord.app import DiscordApp

    app = platforms.discord = DiscordApp(
        token=settings.discord_token.get_secret_value(),
        receive=receiver.receive,
        hear=hear,
        suggest=receiver.suggest_values,
        admits=receiver.admits,
        cursors=cursors,
        api_url=settings.discord_api_url,
        trace=build_http_trace("discord", observability.metrics.observe_platform_call),
        needs_roles=bool(settings.allowed_roles),
        on_uninstall=on_uninstall,
        shards=parse_shards(settings.discord_shards) if settings.discord_shards else None,
    )
    app.client.rest.call_limiter.limiter = observability.limiter
    platforms.surfaces["discord"] = app.surface
    platforms.file_sources["discord"] = app.files
    platforms.histories["discord"] = app.thread_history


def has_remote_users(settings: Settings) -> bool:
    """Whether users chat from other machines, so that a link to this machine would not work for them."""
    has_slack = settings.slack_bot_token or settings.slack_client_id
    slack = settings.slack_api_url if has_slack else ""
    discord = settings.discord_api_url if settings.discord_token.get_secret_value() else ""
    return any(url and not is_loopback(URL(url)) for url in (slack, discord))


def reachable_public_url(settings: Settings) -> str:
    """Returns the configured public URL, or "" if it leads users in a live chat to their own machines."""
    is_local = settings.public_url != "" and is_loopback(URL(settings.public_url))
    return "" if is_local and has_remote_users(settings) else settings.public_url


async def wait_for_discord(discord: "DiscordApp", *, is_alone: bool) -> None:
    """Waits until the connection is closed. Raises ConfigurationError if Discord refuses it for good and no other
    platform is served."""
    try:
        await discord.wait_until_closed()
    except ConfigurationError as error:
        if is_alone:
            raise
        log.warning("Discord is off: %s", error)


def add_platform_checks(observability: ObservabilityDeps, platforms: Platforms) -> None:
    """Adds readiness checks that fail while this process is not connected to a configured platform."""
    for name, app in {"slack": platforms.slack, "discord": platforms.discord}.items():
        if app is not None:
            observability.health.checks[name] = connection_check(app)


def connection_check(app: "SlackApp | DiscordApp") -> ReadinessCheck:
    async def check() -> str:
        return "" if await app.is_connected() else "It is not connected just now."

    return check


def build_slack_installs(settings: Settings, stores: Stores) -> "tuple[TokenStore, InstallFlow]":
    """Returns the store for the tokens of workspaces that install the app, and the flow that obtains the tokens."""
    from bots.slack.install.oauth import OAuthClient
    from bots.slack.install.routes import InstallFlow
    from bots.slack.install.tokens import TokenCipher, TokenStore
    from bots.slack.web_api.client import SlackClient
    from bots.slack.web_api.downloads import FileRefSigner

    oauth = OAuthClient(
        client=SlackClient(bot_token="", api_url=settings.slack_api_url),
        client_id=settings.slack_client_id,
        client_secret=settings.slack_client_secret.get_secret_value(),
    )
    token_cipher = TokenCipher(settings.token_keys)
    tokens = TokenStore(
        installations=stores.installations,
        token_cipher=token_cipher,
        oauth=oauth,
        file_ref_signer=FileRefSigner(settings.token_keys),
    )
    install = InstallFlow(
        oauth=oauth,
        token_cipher=token_cipher,
        installations=stores.installations,
        claim=stores.inbox.claim_key,
        public_url=settings.public_url,
        secret=hashlib.sha256(f"install:{settings.token_keys[0]}".encode()).digest(),
        is_allowed=build_access_policy(settings).may_install,
        new_client=lambda token: SlackClient(bot_token=token, api_url=settings.slack_api_url),
    )
    return tokens, install
