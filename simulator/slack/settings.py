"""What a simulated workspace holds at its start, and what its app was granted."""

from dataclasses import dataclass
from typing import Any, Literal

APP_ID = "A0SIMULATED"

SCOPES = (
    "app_mentions:read",
    "assistant:write",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:read",
    "reactions:write",
    "team:read",
    "usergroups:read",
    "users:read",
)

SUBSCRIPTIONS = (
    "agent_session_stopped",
    "agent_session_title_changed",
    "app_home_opened",
    "app_mention",
    "app_uninstalled",
    "assistant_thread_started",
    "member_joined_channel",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "reaction_added",
    "reaction_removed",
    "team_access_granted",
    "team_access_revoked",
    "tokens_revoked",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A command as the app's manifest declares it, with its leading slash."""

    name: str
    description: str
    usage_hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """A shortcut as the app's manifest declares it: in the menu of every message, or everywhere."""

    name: str
    kind: Literal["message", "global"]
    callback_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackSettings:
    """`configuration_token` creates apps. `rate_scale` multiplies every rate limit (0: no limits).

    `retry_seconds` are the pauses before the three redeliveries; the real platform waits nothing, a minute and five
    minutes. `offline_seconds` is how long an event waits for a Socket Mode connection. `mentions_first` says whether
    `app_mention` comes before its `message` event (None: in turns, as the real platform keeps no order).
    `has_home`: the manifest has the Home tab. `stream_idle_seconds` ends a stream
    that gets nothing more. `is_agent`: the manifest declares the app an agent.
    `is_history_scarce`: the app is distributed outside the Marketplace, so that conversations.history and .replies pass
    once a minute, with 15 messages (docs.slack.dev/changelog/2025-05-terms-rate-limit-update-and-faq).
    `edit_seconds` is how long a message can be edited (None: for ever), the workspace's setting behind
    `edit_window_closed` (docs.slack.dev, chat.update).
    `is_shared`: other organisations are in the channels (Slack Connect), so messages name their files by id alone.
    `clock_seconds` is how far the Date of every answer is ahead of this machine's clock.
    """

    bot_token: str = "xoxb-simulated"  # noqa: S105 - the token of a workspace that exists only here
    app_token: str = "xapp-simulated"  # noqa: S105 - likewise
    signing_secret: str = "simulated"  # noqa: S105 - likewise
    configuration_token: str = "xoxe.xoxp-simulated"  # noqa: S105 - likewise
    events_url: str | None = None
    people: tuple[str, ...] = ("alice", "bob")
    channels: tuple[str, ...] = ("general",)
    bot_name: str = "threadhand"
    workspace_name: str = "simulated"
    scopes: tuple[str, ...] = SCOPES
    subscriptions: tuple[str, ...] = SUBSCRIPTIONS
    commands: tuple[SlashCommand, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()
    has_home: bool = True
    rate_scale: float = 1.0
    ack_seconds: float = 3.0
    retry_seconds: tuple[float, ...] = (0.1, 1.0, 5.0)
    offline_seconds: float = 360.0
    trigger_seconds: float = 3.0
    mentions_first: bool | None = None
    stream_idle_seconds: float = 300.0
    is_history_scarce: bool = False
    edit_seconds: float | None = None
    is_shared: bool = False
    is_agent: bool = True
    file_bytes_max: int = 1_000_000_000
    calls_kept: int = 5_000
    clock_seconds: float = 0.0


def read_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """The arguments of SlackSettings that an app manifest decides."""
    features = manifest["features"]
    return {
        "scopes": tuple(manifest["oauth_config"]["scopes"]["bot"]),
        "subscriptions": tuple(manifest["settings"]["event_subscriptions"]["bot_events"]),
        "commands": tuple(
            SlashCommand(name=one["command"], description=one["description"], usage_hint=one.get("usage_hint", ""))
            for one in features.get("slash_commands", ())
        ),
        "shortcuts": tuple(
            Shortcut(name=one["name"], kind=one["type"], callback_id=one["callback_id"])
            for one in features.get("shortcuts", ())
        ),
        "has_home": features["app_home"]["home_tab_enabled"],
        "is_agent": "agent_view" in features,
    }
