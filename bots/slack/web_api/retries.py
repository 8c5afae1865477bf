"""What Slack's SDK sends again by itself."""

from collections.abc import Mapping

import aiohttp
from slack_sdk.http_retry.async_handler import AsyncRetryHandler
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.http_retry.request import HttpRequest
from slack_sdk.http_retry.response import HttpResponse
from slack_sdk.http_retry.state import RetryState
from yarl import URL

from bots.slack.web_api.rate_limits import REPEATABLE, WAIT_SECONDS_MAX

_UNCOUNTED = frozenset({"oauth.v2.access"})
"""Called without a token, so no token's budget counts them."""


class UncountedRetry(AsyncRateLimitErrorRetryHandler):
    """Waits as long as Slack asks, and sends again; a refused call was not carried out, so this repeats nothing."""

    async def _can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if response is None or response.status_code != 429 or _method(request) not in _UNCOUNTED:
            return False
        return retry_after(response.headers) <= WAIT_SECONDS_MAX


class RepeatableRetry(AsyncRetryHandler):
    """Sends again after a lost connection or a server fault, where twice is the same as once."""

    async def _can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if _method(request) not in REPEATABLE:
            return False
        if response is not None:
            return response.status_code >= 500
        return isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError)


def retry_after(headers: Mapping[str, list[str] | str] | Mapping[str, str]) -> float:
    """The seconds of `Retry-After`, at least one."""
    for name, value in headers.items():
        if name.lower() == "retry-after":
            first = value if isinstance(value, str) else value[0]
            return max(1.0, float(first)) if first.replace(".", "", 1).isdecimal() else 1.0
    return 1.0


def _method(request: HttpRequest) -> str:
    return URL(request.url).name
