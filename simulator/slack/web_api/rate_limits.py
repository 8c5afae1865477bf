"""Slack's rate limits: a bucket per workspace and method, for posting also per channel."""

import math
from dataclasses import dataclass, field

# calls a minute of the tiers that the platform documents; a minute's worth may come in one burst
TIERS = {"t1": 1, "t2": 20, "t3": 50, "t4": 100, "special": 600, "post": 300, "append": 100, "scarce": 1}
_POSTS_PER_SECOND = 1.0
_POST_BURST = 5.0
# A bot under test connects again and again; the platform documents no burst for this tier.
_TIER_1_BURST = 60.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


@dataclass(slots=True)
class Rates:
    """`scale` multiplies every limit; 0 switches them off.

    A method that changes its tier, as history does, starts with that tier's whole minute.
    """

    scale: float = 1.0
    _buckets: dict[tuple[str, ...], _Bucket] = field(default_factory=dict[tuple[str, ...], _Bucket])

    def take(self, team_id: str, method: str, tier: str, channel: str, now: float) -> int:
        """Seconds that the caller has to wait (Retry-After), 0 where the call may pass."""
        if self.scale <= 0:
            return 0
        per_minute = TIERS[tier]
        burst = _TIER_1_BURST if tier == "t1" else float(per_minute)
        wait = self._draw((team_id, method, tier), per_minute / 60, burst, now)
        # the platform documents tier 4 for appends; developers report that about one a second passes in a channel
        if not wait and tier in ("post", "append"):
            wait = self._draw((team_id, method, tier, channel), _POSTS_PER_SECOND, _POST_BURST, now)
        return wait

    def _draw(self, key: tuple[str, ...], per_second: float, burst: float, now: float) -> int:
        rate, size = per_second * self.scale, max(1.0, burst * self.scale)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(size, now)
        bucket.tokens = min(size, bucket.tokens + (now - bucket.filled_at) * rate)
        bucket.filled_at = now
        if bucket.tokens < 1:
            return max(1, math.ceil((1 - bucket.tokens) / rate))
        bucket.tokens -= 1
        return 0
