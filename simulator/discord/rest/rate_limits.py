"""Rate limits: fixed windows per route and channel, and one for all calls together."""

import math
import time
from dataclasses import dataclass, field

_GLOBAL_CALLS = 50
_BUCKETS_KEPT = 2000


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `calls` in a window of `seconds`, per major parameter of the route."""

    name: str
    calls: int
    seconds: float


@dataclass(slots=True)
class _Window:
    ends_at: float
    used: int


@dataclass(slots=True)
class RateLimits:
    """`scale` stretches every window; 0 means no limits. Times are those of the monotonic clock."""

    windows: dict[str, _Window] = field(default_factory=dict[str, _Window])
    everything: _Window = field(default_factory=lambda: _Window(ends_at=0.0, used=0))

    def take_global(self, scale: float) -> float:
        """Counts a call; answers the seconds to wait, 0 where it may pass."""
        now = time.monotonic()
        if self.everything.ends_at <= now:
            self.everything = _Window(ends_at=now + scale, used=0)
        self.everything.used += 1
        return self.everything.ends_at - now if self.everything.used > _GLOBAL_CALLS else 0.0

    def take(self, limit: Limit, major: str, scale: float) -> tuple[float, dict[str, str]]:
        """Counts a call; answers the seconds to wait (0: it may pass) and the headers of the answer."""
        now = time.monotonic()
        key = f"{limit.name}:{major}"
        window = self.windows.get(key)
        if window is None or window.ends_at <= now:
            self._forget(now)
            window = self.windows[key] = _Window(ends_at=now + limit.seconds * scale, used=0)
        is_over = window.used >= limit.calls
        window.used += 0 if is_over else 1
        left = window.ends_at - now
        headers = {
            "X-RateLimit-Limit": str(limit.calls),
            "X-RateLimit-Remaining": str(limit.calls - window.used),
            "X-RateLimit-Reset": f"{time.time() + left:.3f}",
            "X-RateLimit-Reset-After": f"{left:.3f}",
            "X-RateLimit-Bucket": limit.name,
        }
        return left if is_over else 0.0, headers

    def _forget(self, now: float) -> None:
        if len(self.windows) > _BUCKETS_KEPT:
            self.windows = {k: window for k, window in self.windows.items() if window.ends_at > now}


def refusal_headers(wait: float, scope: str) -> dict[str, str]:
    """Discord's own 429 carries `Via`; one without it comes from its shield and means a ban."""
    return {"Via": "1.1 google", "Retry-After": str(math.ceil(wait)), "X-RateLimit-Scope": scope}
