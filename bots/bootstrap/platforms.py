"""The chat platforms of the settings, and what the rest of the program has of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bots.bootstrap.instrumentation import Lookout, WatchedSurface, call_trace
from bots.bootstrap.slack_installs import InstallDesk
from bots.bootstrap.stores import Stores
from bots.delivery.poster import Surface
from bots.discord.app import DiscordApp
from bots.discord.gateway.cursors import CursorStore
from bots.inbound.receive import Receive
from bots.settings import Settings
from bots.settings.shards import shards_of
from bots.slack.app import OnWorkspaceUninstall, SlackApp
from core.ports import FileSource, ThreadTalk


@dataclass(slots=True)
class Platforms:
    """Filled before anything starts; by platform name."""

    sources: dict[str, FileSource]
    surfaces: dict[str, Surface] = field(default_factory=dict[str, Surface])
    talks: dict[str, ThreadTalk] = field(default_factory=dict[str, ThreadTalk])
    slack: SlackApp | None = None
    discord: DiscordApp | None = None


def add_slack(
    platforms: Platforms,
    settings: Settings,
    receive: Receive,
    tower: Lookout,
    stores: Stores,
    left: OnWorkspaceUninstall,
) -> None:
    """Nothing where the settings name no Slack. `left`: told of a workspace that took the bot away."""
    if settings.slack_mode == "off":
        return
    desk = InstallDesk(settings, stores) if settings.slack_client_id else None
    app = platforms.slack = SlackApp(
        bot_token=settings.slack_bot_token.get_secret_value(),
        app_token=settings.slack_app_token.get_secret_value() or None,
        signing_secret=settings.slack_signing_secret.get_secret_value() or None,
        api_url=settings.slack_api_url,
        receive=receive,
        trace=call_trace("slack", tower.metrics.called),
        groups=settings.allowed_roles,
        tokens=desk.tokens if desk else None,
        install=desk.install if desk else None,
        limiter=tower.limiter,
        left=left,
        past=stores.inbox,
    )
    platforms.surfaces["slack"] = WatchedSurface("slack", app.surface, tower.figures)
    platforms.sources["slack"] = app.files
    platforms.talks["slack"] = app.talk


def add_discord(
    platforms: Platforms,
    settings: Settings,
    receive: Receive,
    cursors: CursorStore,
    agents: Mapping[str, str],
    tower: Lookout,
    left: OnWorkspaceUninstall,
) -> None:
    """Nothing where the settings name no Discord. `agents` are offered in menus, by name."""
    if not settings.discord_token.get_secret_value():
        return
    app = platforms.discord = DiscordApp(
        token=settings.discord_token.get_secret_value(),
        receive=receive,
        cursors=cursors,
        api_url=settings.discord_api_url,
        agents=agents,
        trace=call_trace("discord", tower.metrics.called),
        needs_roles=bool(settings.allowed_roles),
        left=left,
        shards=shards_of(settings.discord_shards) if settings.discord_shards else None,
    )
    app.client.rest.turns.limiter = tower.limiter
    platforms.surfaces["discord"] = WatchedSurface("discord", app.surface, tower.figures)
    platforms.sources["discord"] = app.files
    platforms.talks["discord"] = app.talk
