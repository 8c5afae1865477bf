"""Discord's REST API through discord.py's HTTP client, with the global rate limit and error translation."""

import asyncio
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import cast

import aiohttp
import discord
from discord.http import HTTPClient, Route
from pydantic import JsonValue
from yarl import URL

from bots.delivery.rate_limiter import MemoryRateBudget, RateLimit, RateLimiter, rate_limit_owner
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnavailable, SurfaceUnclear
from core.domain.json import JsonObject
from core.ports import Precondition
from core.tasks import shield
from core.web_access.guard import is_loopback

Channel = discord.abc.GuildChannel | discord.abc.PrivateChannel | discord.Thread

WAIT_SECONDS_MAX = 30
INTERVAL_SECONDS = 1 / 45
BURST = 5
"""Burst size. Together with the interval, it allows at most 50 calls in any second, which is Discord's global limit.

Interaction responses do not count toward the limit, and discord.py enforces the limits of each route."""
UNCOUNTED = ("/interactions/", "/webhooks/")


def global_rate_limit(token: str, *, limits_proactively: bool) -> RateLimit:
    """Returns the rate limit for all calls of a bot. If not `limits_proactively`, it is enforced only after a 429."""
    return RateLimit(
        owner=rate_limit_owner("discord", token),
        name="global",
        interval_seconds=INTERVAL_SECONDS,
        burst=BURST,
        is_proactive=limits_proactively,
    )


class CallLimiter:
    """Makes the calls of one bot wait for `limiter`.

    With `limits_proactively`, calls are limited even before Discord has refused one. None means True, except for a
    simulator on this machine, which has other limits or none."""

    def __init__(self, http: HTTPClient) -> None:
        self.limiter = RateLimiter(MemoryRateBudget())
        self.limits_proactively: bool | None = None
        self._http = http
        # discord.py waits out a 429 silently, so a trace of its responses is needed to detect it
        http.http_trace = http.http_trace or aiohttp.TraceConfig()
        http.http_trace.on_request_end.append(self._on_response)

    async def wait_for_turn(self, route: Route) -> None:
        """Waits for permission to call. Raises SurfaceRateLimited if the wait would be long."""
        if not route.path.startswith(UNCOUNTED):
            everything = self._allowance()
            line = f"channel {route.channel_id or route.guild_id or ''}"
            # this limit has no rate of its own, because discord.py keeps those; it makes channels take turns at the
            # global limit
            channel = RateLimit(owner=everything.owner, name=line, interval_seconds=0.0)
            await self.limiter.admit(
                [everything, channel], wait_seconds_max=WAIT_SECONDS_MAX, oversleeps=route.method != "POST"
            )

    async def _on_response(
        self, _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        answer = params.response
        is_global = answer.headers.get("X-RateLimit-Scope") == "global"
        if answer.status != 429 or not (is_global or "X-RateLimit-Global" in answer.headers):
            return
        told = answer.headers.get("Retry-After", "")
        seconds = float(told) if told.replace(".", "", 1).isdecimal() else 1.0
        await self.limiter.record_refusal([self._allowance()], seconds=seconds)

    def _allowance(self) -> RateLimit:
        is_ahead = not _is_local_url(Route.BASE) if self.limits_proactively is None else self.limits_proactively
        return global_rate_limit(self._http.token or "", limits_proactively=is_ahead)


@lru_cache(maxsize=4)
def _is_local_url(base: str) -> bool:
    return is_loopback(URL(base))


log = logging.getLogger(__name__)

UNKNOWN_CHANNEL = "10003"
NOT_FOUND_CODES = frozenset({UNKNOWN_CHANNEL, "10008", "50024"})
"""Discord's error codes for an unknown channel, an unknown message, and a channel without messages (a forum)."""
THREAD_ARCHIVED = "50083"
THREAD_EXISTS = "160004"
TOO_LARGE = "too_large"
UPLOAD_TIMEOUT_FACTOR = 20
"""The timeout of an upload is this many times the timeout of another call."""


class RestClient:
    """Calls the API. A call that has started continues even if its caller is cancelled.

    If a waiting call were cancelled, discord.py would leave its global rate limit locked. A caller that is cancelled
    before its call has started makes no call.

    discord.py waits out rate limits of up to 30 s and retries server errors five times. `attempt_seconds` limits each
    attempt."""

    def __init__(self, http: HTTPClient, *, attempt_seconds: float = 15.0) -> None:
        self._http = http
        self.attempt_seconds = attempt_seconds
        self.call_limiter = CallLimiter(http)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | list[JsonObject] | None = None,
        query: dict[str, str] | None = None,
        precondition: Precondition | None = None,
        **parameters: str,
    ) -> JsonValue:
        """Makes a call and returns the decoded JSON. Raises a subclass of SurfaceError."""
        options: dict[str, object] = {"timeout": self._timeout(1)}
        if body is not None:
            options["json"] = body
        if query is not None:
            options["params"] = query
        return await self._shielded(Route(method, path, **parameters), options, precondition)

    async def find_channel(self, client: discord.Client, channel_id: int) -> Channel | None:
        """Returns a channel or thread from the gateway's cache, or fetches it: the cache has neither archived threads
        nor the guilds of other processes' shards, and is empty until the guilds of a session have come. Returns None if
        the channel was deleted or is hidden. Raises SurfaceError."""
        if (cached := client.get_channel(channel_id)) is not None:
            return cached
        await self.call_limiter.wait_for_turn(Route("GET", "/channels/{channel_id}", channel_id=channel_id))
        with translating_errors():
            try:
                async with asyncio.timeout(self.attempt_seconds):
                    return await shield(client.fetch_channel(channel_id), name="discord channel")
            except (discord.Forbidden, discord.NotFound):
                return None

    async def upload(
        self,
        path: str,
        *,
        body: JsonObject,
        files: Sequence[discord.File],
        precondition: Precondition | None = None,
        **parameters: str,
    ) -> JsonValue:
        """Posts a message with files, as multipart. Raises the same exceptions as `call`."""
        form: list[object] = [
            {"name": "payload_json", "value": discord.utils._to_json(body)}  # noqa: SLF001 - discord.py's own encoder # pyright: ignore[reportPrivateUsage]
        ]
        form += [
            {
                "name": f"files[{index}]",
                "value": file.fp,
                "filename": file.filename,
                "content_type": "application/octet-stream",
            }
            for index, file in enumerate(files)
        ]
        options: dict[str, object] = {"timeout": self._timeout(UPLOAD_TIMEOUT_FACTOR), "files": files, "form": form}
        return await self._shielded(Route("POST", path, **parameters), options, precondition)

    def _timeout(self, factor: int) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=self.attempt_seconds * factor)

    async def _shielded(self, route: Route, options: dict[str, object], precondition: Precondition | None) -> JsonValue:
        await self.call_limiter.wait_for_turn(route)
        if precondition is not None:
            await precondition()
        return await shield(self._request(route, options), name=f"discord {route.method} {route.path}")

    async def _request(self, route: Route, options: dict[str, object]) -> JsonValue:
        with translating_errors():
            return cast(JsonValue, await self._http.request(route, **options))  # pyright: ignore[reportArgumentType] - passed on to aiohttp


@contextmanager
def translating_errors() -> Generator[None]:
    """Context manager for calls of discord.py: raises the SurfaceError that corresponds to an error.

    If discord.py cannot parse an answer, its error may have any type, so every exception is translated. An unexpected
    type may also be a mistake in the block, so it is logged with its traceback."""
    try:
        yield
    except SurfaceError:
        raise
    except Exception as error:
        if not isinstance(error, discord.DiscordException | aiohttp.ClientError | OSError):
            log.exception("an answer of Discord could not be handled")
        raise translate_error(error) from error


def translate_error(error: Exception) -> SurfaceError:
    """Returns the SurfaceError that corresponds to an error of discord.py."""
    match error:
        case discord.RateLimited():
            return SurfaceRateLimited("Discord's rate limit is reached.", retry_after_seconds=error.retry_after)
        case discord.HTTPException(status=429):
            header = error.response.headers.get("Retry-After", "")
            seconds = float(header) if header.replace(".", "", 1).isdecimal() else 60.0
            return SurfaceRateLimited("Discord's rate limit is reached.", retry_after_seconds=seconds)
        case discord.HTTPException(status=413) | discord.HTTPException(code=40005):
            return SurfaceRefused("The file is larger than Discord accepts here.", code=TOO_LARGE)
        case discord.HTTPException(status=status) if status >= 500:
            return SurfaceUnclear(f"Discord answered {status}.")
        case discord.HTTPException(status=401, text=text):
            return SurfaceUnavailable(f"Discord refused the token: {text}", code="401")
        case discord.HTTPException(status=status, code=code, text=text):
            return SurfaceRefused(f"Discord answered {status}: {text}", code=str(code or status))
        case _:
            return SurfaceUnclear(f"Discord did not answer: {type(error).__name__}.")


def get_objects(value: JsonValue) -> list[JsonObject]:
    """Returns the objects in a JSON array, or an empty list for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def get_text(value: JsonValue, key: str) -> str:
    """Returns a string field of an object, or "". Raises SurfaceUnclear if the value is not an object."""
    if not isinstance(value, dict):
        raise SurfaceUnclear("Discord's answer is not an object.")
    found = value.get(key)
    return found if isinstance(found, str) else ""
