"""What Slack allows a token to call, by method.

From docs.slack.dev/apis/web-api/rate-limits and the page of each method: limits are counted per method, workspace and
app. Tiers are minimums a minute (20+, 50+, 100+) with bursts of unsaid size, so a tier is kept only for a while after
Slack has refused a call (429). Messages are different: one a second to a channel, in short bursts more, and nobody
promises that what exceeds this is shown. That pace is kept from the start.
"""

from collections.abc import Mapping

from bots.delivery.rate_limiter import RateLimit, RateLimiter, rate_limit_owner

WAIT_SECONDS_MAX = 30
POST_MESSAGE = "chat.postMessage"
POST_INTERVAL_SECONDS = 1.0
POST_BURST = 3
"""Ours: Slack allows "short bursts", and says no number."""
_TIER_2, _TIER_3, _TIER_4 = 60 / 20, 60 / 50, 60 / 100
_HUNDREDS = 60 / 200
"""Slack speaks of several hundred messages a minute in a workspace, and of hundreds of `auth.test`."""
_INTERVALS: Mapping[str, float] = {
    "assistant.threads.setStatus": _HUNDREDS,
    "auth.test": _HUNDREDS,
    "chat.postEphemeral": _TIER_4,
    "files.completeUploadExternal": _TIER_4,
    "files.getUploadURLExternal": _TIER_4,
    "files.info": _TIER_4,
    POST_MESSAGE: _HUNDREDS,
    "reactions.remove": _TIER_2,
    "usergroups.users.list": _TIER_2,
    "users.info": _TIER_4,
}

# Newer content takes the place of what waits: the caller had better hear of the limit at once.
NEVER_WAITING_METHODS = frozenset(
    {"agents.sessions.setStatus", "assistant.threads.setStatus", "chat.update"}
)
# Carried out twice they leave the same state as once, so an unclear end may be tried again here.
IDEMPOTENT_METHODS = frozenset(
    {
        "agents.sessions.setStatus",
        "apps.connections.open",
        "auth.test",
        "chat.update",
        "conversations.history",
        "conversations.replies",
        "files.getUploadURLExternal",
        "files.info",
        "reactions.add",
        "reactions.get",
        "reactions.remove",
        "users.info",
    }
)


def allowances_for_call(
    token: str, method: str, channel: str, *, limits_proactively: bool = True
) -> tuple[RateLimit, ...]:
    """What counts a call; without `paces_ahead` nothing does before Slack has refused one."""
    owner = rate_limit_owner("slack", token)
    whole = RateLimit(
        owner=owner, name=method, interval_seconds=_INTERVALS.get(method, _TIER_3), burst=1
    )
    if method != POST_MESSAGE:
        return (whole,)
    in_channel = RateLimit(
        owner=owner,
        name=f"{method} {channel}",
        interval_seconds=POST_INTERVAL_SECONDS,
        burst=POST_BURST,
        is_proactive=limits_proactively,
    )
    return whole, in_channel


class CallLimiter:
    """The calls of one client, each of which waits for its turn."""

    def __init__(self, limiter: RateLimiter, *, limits_proactively: bool) -> None:
        self._limiter = limiter
        self._paces_ahead = limits_proactively

    async def acquire(self, token: str, method: str, channel: str) -> None:
        """Raises SurfaceRateLimited where waiting is the caller's to plan."""
        await self._limiter.admit(
            allowances_for_call(token, method, channel, limits_proactively=self._paces_ahead),
            wait_seconds_max=0 if method in NEVER_WAITING_METHODS else WAIT_SECONDS_MAX,
            oversleeps=method in IDEMPOTENT_METHODS,
        )

    async def record_rate_limit(
        self, token: str, method: str, channel: str, *, seconds: float
    ) -> None:
        """Slack has refused a call: it takes none of that method for so long (`Retry-After`)."""
        counted = allowances_for_call(token, method, channel, limits_proactively=self._paces_ahead)
        await self._limiter.refuse(counted, seconds=seconds)
