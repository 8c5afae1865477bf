"""Slack's rate limits by method.

From docs.slack.dev/apis/web-api/rate-limits and the page of each method: limits apply per method, workspace and app.
Tiers are minimums per minute (20+, 50+, 100+) with unspecified bursts, so a tier is enforced only for a while after a
429. For messages, Slack allows one per second and channel, with short bursts, and may drop the excess, so that limit is
enforced from the start."""

from collections.abc import Mapping

from bots.delivery.rate_limiter import RateLimit, rate_limit_owner

WAIT_SECONDS_MAX = 30
POST_MESSAGE = "chat.postMessage"
POST_INTERVAL_SECONDS = 1.0
POST_BURST = 3
"""Our own limit, because Slack allows "short bursts" of unspecified size."""
_TIER_2, _TIER_3, _TIER_4 = 60 / 20, 60 / 50, 60 / 100
_HUNDREDS = 60 / 200
"""Seconds between calls: Slack allows several hundred messages a minute per workspace, and hundreds of `auth.test`."""
_INTERVALS: Mapping[str, float] = {
    "assistant.threads.setStatus": _HUNDREDS,
    "auth.test": _HUNDREDS,
    "chat.appendStream": _TIER_4,
    "chat.postEphemeral": _TIER_4,
    "files.completeUploadExternal": _TIER_4,
    "files.getUploadURLExternal": _TIER_4,
    "files.info": _TIER_4,
    POST_MESSAGE: _HUNDREDS,
    "chat.startStream": _TIER_2,
    "chat.stopStream": _TIER_2,
    "reactions.remove": _TIER_2,
    "usergroups.users.list": _TIER_2,
    "users.info": _TIER_4,
}

# Calls of these methods raise instead of waiting, because newer content would replace theirs in the meantime.
NEVER_WAITING_METHODS = frozenset(
    {"agents.sessions.setStatus", "assistant.threads.setStatus", "chat.appendStream", "chat.update"}
)
# Methods that may be retried if it is unclear whether Slack carried out the call.
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


def rate_limits_for_call(
    token: str, method: str, channel: str, *, limits_proactively: bool = True
) -> tuple[RateLimit, ...]:
    """Returns the rate limits that apply to a call: the workspace's limit for the method and, if there is a channel,
    the channel's. The channel's limit may have no rate of its own, but makes channels take turns.

    If `limits_proactively` is false, no limit is enforced before a 429."""
    owner = rate_limit_owner("slack", token)
    whole = RateLimit(owner=owner, name=method, interval_seconds=_INTERVALS.get(method, _TIER_3), burst=1)
    if not channel:
        return (whole,)
    is_post = method == POST_MESSAGE
    in_channel = RateLimit(
        owner=owner,
        name=f"{method} {channel}",
        interval_seconds=POST_INTERVAL_SECONDS if is_post else 0.0,
        burst=POST_BURST if is_post else 1,
        is_proactive=is_post and limits_proactively,
    )
    return whole, in_channel
