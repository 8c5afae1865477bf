"""The chat platforms of the settings, and what the rest of the program has of them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from bots.bootstrap.inbound import build_access_policy
from bots.bootstrap.instrumentation import InstrumentedSurface, ObservabilityDeps, build_http_trace
from bots.bootstrap.stores import Stores
from bots.delivery.poster import DeliverySurface
from bots.discord.app import DiscordApp
from bots.discord.gateway.cursors import CursorStore
from bots.inbound.receiver import Receive
from bots.settings import Settings
from bots.settings.discord import parse_shards
from bots.slack.app import OnWorkspaceUninstall, SlackApp
from bots.slack.install.flow import InstallFlow
from bots.slack.install.oauth import OAuthClient
from bots.slack.install.tokens import TokenCipher, TokenStore
from bots.slack.web_api.client import SlackClient
from bots.slack.web_api.files import FileRefSigner
from core.ports import FileSource, ThreadTalk


@dataclass(slots=True)
class Platforms:
    """Filled before anything starts; by platform name."""

    sources: dict[str, FileSource]
    surfaces: dict[str, DeliverySurface] = field(default_factory=dict[str, DeliverySurface])
    talks: dict[str, ThreadTalk] = field(default_factory=dict[str, ThreadTalk])
    slack: SlackApp | None = None
    discord: DiscordApp | None = None


def add_slack(
    platforms: Platforms,
    settings: Settings,
    receive: Receive,
    tower: ObservabilityDeps,
    stores: Stores,
    on_uninstall: OnWorkspaceUninstall,
) -> None:
    """Nothing where the settings name no Slack. `on_uninstall`: told of a workspace that took the bot away."""
    if settings.slack_mode == "off":
        return
    desk = SlackInstallDeps(settings, stores) if settings.slack_client_id else None
    app = platforms.slack = SlackApp(
        bot_token=settings.slack_bot_token.get_secret_value(),
        app_token=settings.slack_app_token.get_secret_value() or None,
        signing_secret=settings.slack_signing_secret.get_secret_value() or None,
        api_url=settings.slack_api_url,
        receive=receive,
        trace=build_http_trace("slack", tower.metrics.called),
        groups=settings.allowed_roles,
        tokens=desk.tokens if desk else None,
        install=desk.install if desk else None,
        limiter=tower.limiter,
        on_uninstall=on_uninstall,
        inbox=stores.inbox,
    )
    platforms.surfaces["slack"] = InstrumentedSurface("slack", app.surface, tower.figures)
    platforms.sources["slack"] = app.files
    platforms.talks["slack"] = app.thread_history


def add_discord(
    platforms: Platforms,
    settings: Settings,
    receive: Receive,
    cursors: CursorStore,
    agents: Mapping[str, str],
    tower: ObservabilityDeps,
    on_uninstall: OnWorkspaceUninstall,
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
        trace=build_http_trace("discord", tower.metrics.called),
        needs_roles=bool(settings.allowed_roles),
        on_uninstall=on_uninstall,
        shards=parse_shards(settings.discord_shards) if settings.discord_shards else None,
    )
    app.client.rest.call_limiter.limiter = tower.limiter
    platforms.surfaces["discord"] = InstrumentedSurface("discord", app.surface, tower.figures)
    platforms.sources["discord"] = app.files
    platforms.talks["discord"] = app.thread_history


class SlackInstallDeps:
    """`tokens` are those that are stored, `install` is how they come there. Raises ConfigurationError."""

    def __init__(self, settings: Settings, stores: Stores) -> None:
        self._api_url = settings.slack_api_url
        oauth = OAuthClient(
            client=self._client(""),
            client_id=settings.slack_client_id,
            client_secret=settings.slack_client_secret.get_secret_value(),
        )
        token_cipher = TokenCipher(settings.token_keys)
        policy = build_access_policy(settings)
        self.tokens = TokenStore(
            installations=stores.installations,
            token_cipher=token_cipher,
            oauth=oauth,
            file_ref_signer=FileRefSigner(settings.token_keys),
        )
        self.install = InstallFlow(
            oauth=oauth,
            token_cipher=token_cipher,
            installations=stores.installations,
            claim_store=stores.inbox,
            public_url=settings.public_url,
            secret=hashlib.sha256(f"install:{settings.token_keys[0]}".encode()).digest(),
            is_allowed=policy.admits_workspace,
            new_client=self._client,
        )

    def _client(self, token: str) -> SlackClient:
        return SlackClient(bot_token=token, api_url=self._api_url)
