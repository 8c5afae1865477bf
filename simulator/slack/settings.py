"""What a simulated workspace holds at its start, and what its app was granted."""

from dataclasses import dataclass

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
class SlackSettings:
    """`rate_scale` multiplies every rate limit (0: no limits).

    `retry_seconds` are the pauses before the three redeliveries; the real platform waits nothing, a minute and five
    minutes. `offline_seconds` is how long an event waits for a Socket Mode connection. `mentions_first` says whether
    `app_mention` comes before its `message` event (None: in turns, as the real platform keeps no order).
    `stream_idle_seconds` ends a stream that gets nothing more. `is_agent`: the manifest declares the app an agent.
    `is_shared`: other organisations are in the channels (Slack Connect), so messages name their files by id alone.
    """

    bot_token: str = "xoxb-simulated"  # noqa: S105 - the token of a workspace that exists only here
    app_token: str = "xapp-simulated"  # noqa: S105 - likewise
    signing_secret: str = "simulated"  # noqa: S105 - likewise
    events_url: str | None = None
    people: tuple[str, ...] = ("alice", "bob")
    channels: tuple[str, ...] = ("general",)
    bot_name: str = "threadhand"
    workspace_name: str = "simulated"
    scopes: tuple[str, ...] = SCOPES
    subscriptions: tuple[str, ...] = SUBSCRIPTIONS
    commands: tuple[SlashCommand, ...] = ()
    rate_scale: float = 1.0
    ack_seconds: float = 3.0
    retry_seconds: tuple[float, ...] = (0.1, 1.0, 5.0)
    offline_seconds: float = 360.0
    trigger_seconds: float = 3.0
    mentions_first: bool | None = None
    stream_idle_seconds: float = 300.0
    is_shared: bool = False
    is_agent: bool = True
    file_bytes_max: int = 1_000_000_000
    calls_kept: int = 5_000
