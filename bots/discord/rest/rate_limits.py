"""What Discord allows a bot to call, over all routes.

From docs.discord.com/developers/topics/rate-limits: a bot may make 50 requests a second, and what answers an
interaction is not among them. The limits of single routes come in the headers of the answers; discord.py keeps them.
"""

from functools import lru_cache
from types import SimpleNamespace

import aiohttp
from discord.http import HTTPClient, Route
from yarl import URL

from bots.delivery.memory_rate_budget import MemoryRateBudget
from bots.delivery.rate_limiter import Allowance, RateLimiter, owner_of
from core.web_access.loopback import is_loopback

WAIT_SECONDS_MAX = 30
INTERVAL_SECONDS = 1 / 45
BURST = 5
"""With the interval never more than 50 in any second."""
UNCOUNTED = ("/interactions/", "/webhooks/")


def allowance(token: str, *, paces_ahead: bool) -> Allowance:
    """What counts all calls of a bot; without `paces_ahead` nothing does before Discord has refused one."""
    return Allowance(
        owner=owner_of("discord", token),
        name="global",
        interval_seconds=INTERVAL_SECONDS,
        burst=BURST,
        always_kept=paces_ahead,
    )


class Turns:
    """The calls of one bot, each of which waits for its turn at `limiter`. `paces_ahead`: also before Discord has
    refused any; None: unless a stand-in on this machine is called, which has limits of its own, or none."""

    def __init__(self, http: HTTPClient) -> None:
        self.limiter = RateLimiter(MemoryRateBudget())
        self.paces_ahead: bool | None = None
        self._http = http
        # discord.py sits a refusal out and says nothing; the answer passes here
        http.http_trace = http.http_trace or aiohttp.TraceConfig()
        http.http_trace.on_request_end.append(self._answered)

    async def wait(self, route: Route) -> None:
        """Raises SurfaceRateLimited where that would take long."""
        if not route.path.startswith(UNCOUNTED):
            await self.limiter.admit(
                [self._allowance()],
                wait_seconds_max=WAIT_SECONDS_MAX,
                oversleeps=route.method != "POST",
            )

    async def _answered(
        self,
        _session: aiohttp.ClientSession,
        _context: SimpleNamespace,
        params: aiohttp.TraceRequestEndParams,
    ) -> None:
        answer = params.response
        is_global = answer.headers.get("X-RateLimit-Scope") == "global"
        if answer.status != 429 or not (is_global or "X-RateLimit-Global" in answer.headers):
            return
        told = answer.headers.get("Retry-After", "")
        seconds = float(told) if told.replace(".", "", 1).isdecimal() else 1.0
        await self.limiter.refuse([self._allowance()], seconds=seconds)

    def _allowance(self) -> Allowance:
        is_ahead = not _is_here(Route.BASE) if self.paces_ahead is None else self.paces_ahead
        return allowance(self._http.token or "", paces_ahead=is_ahead)


@lru_cache(maxsize=4)
def _is_here(base: str) -> bool:
    return is_loopback(URL(base))
