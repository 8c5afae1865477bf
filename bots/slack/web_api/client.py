"""The client of Slack's Web API, with its session, retries and error translation."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, cast

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.async_handler import AsyncRetryHandler
from slack_sdk.http_retry.request import HttpRequest
from slack_sdk.http_retry.response import HttpResponse
from slack_sdk.http_retry.state import RetryState
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from bots.delivery.rate_limiter import MemoryRateBudget, RateLimiter
from bots.slack.events.payload_fields import get_object, get_text
from bots.slack.web_api.rate_limits import (
    IDEMPOTENT_METHODS,
    NEVER_WAITING_METHODS,
    WAIT_SECONDS_MAX,
    rate_limits_for_call,
)
from core.domain.errors import (
    ConfigurationError,
    SurfaceError,
    SurfaceRateLimited,
    SurfaceRefused,
    SurfaceUnavailable,
    SurfaceUnclear,
    TokenRefused,
)
from core.domain.json import JsonObject
from core.domain.threads import Address
from core.ports import Precondition
from core.web_access.guard import is_loopback

ACKNOWLEDGE_SECONDS = 2.5
"""Slack requires an acknowledgement within 3 s. The rest of that time is for storing the payload."""
_look_up_until: ContextVar[float] = ContextVar("look_up_until", default=math.inf)


@contextmanager
def acknowledgement_deadline() -> Generator[None]:
    """Context manager: all lookups inside the block end before Slack's deadline for the acknowledgement."""
    token = _look_up_until.set(time.monotonic() + ACKNOWLEDGE_SECONDS)
    try:
        yield
    finally:
        _look_up_until.reset(token)


def lookup_seconds_left(seconds_max: float) -> float:
    """Returns how long a lookup may take: `seconds_max`, or less inside `acknowledging`."""
    return max(0.0, min(seconds_max, _look_up_until.get() - time.monotonic()))


class IdempotentCallRetry(AsyncRetryHandler):
    """Retries idempotent calls after a lost connection or a server error."""

    async def _can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if _method_name(request) not in IDEMPOTENT_METHODS:
            return False
        if response is not None:
            return response.status_code >= 500
        return isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError)


def retry_after_seconds(headers: Mapping[str, list[str] | str] | Mapping[str, str]) -> float:
    """Returns the seconds in `Retry-After`, at least 1."""
    for name, value in headers.items():
        if name.lower() == "retry-after":
            first = value if isinstance(value, str) else value[0]
            return max(1.0, float(first)) if first.replace(".", "", 1).isdecimal() else 1.0
    return 1.0


def _method_name(request: HttpRequest) -> str:
    return URL(request.url).name


API_URL = "https://slack.com/api/"
CALL_SECONDS_MAX = 15
RATE_LIMIT_ATTEMPTS = 4

log = logging.getLogger(__name__)

_UNCLEAR_CODES = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
_UNAVAILABLE_CODES = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_authed",
        "org_login_required",
        "team_added_to_org",
        "token_expired",
        "token_revoked",
    }
)
"""Errors of every method (docs.slack.dev) that are about the token or the workspace. They end when the operator
replaces the token, or when Slack has moved the workspace to an organisation."""
_RATE_CODES = frozenset({"ratelimited", "rate_limited"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of the bot user in a workspace (`team_id`). Users call the bot by `name`. `organisation_id` is empty
    if it is unknown.

    `scopes` are the scopes of the token, or None if Slack has not reported them."""

    team_id: str
    user_id: str
    bot_id: str
    organisation_id: str = ""
    team_name: str = ""
    name: str = "threadhand"
    scopes: frozenset[str] | None = None


Parameters = Mapping[str, str | int | bool]


class _Answer(Protocol):
    data: object
    headers: Mapping[str, str]
    status_code: int


class _Calls(Protocol):
    """Types for the method of the SDK's client that makes all calls."""

    async def api_call(
        self,
        api_method: str,
        *,
        http_verb: str = "POST",
        params: Parameters | None = None,
        json: JsonObject | None = None,
        data: Mapping[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> _Answer: ...


class SlackClient:
    """Calls the Web API for one workspace. `web` is the SDK's client, for parts of the SDK that need one.

    Calls wait for `limiter`. With `limits_proactively`, posts are spaced even before Slack has refused one. By default,
    this is off for a simulator on this machine, which has other limits or none. `unavailable_methods` are methods that
    Slack has permanently refused to the workspace, so that they are not called again. `known_channel_ids` caches
    channels that belong to the workspace, which is checked only for an organisation's token."""

    def __init__(
        self,
        *,
        bot_token: str,
        api_url: str = API_URL,
        trace: aiohttp.TraceConfig | None = None,
        limiter: RateLimiter | None = None,
        limits_proactively: bool | None = None,
    ) -> None:
        self._trace = trace
        self.api_url = URL(api_url)
        self._limiter = limiter or RateLimiter(MemoryRateBudget())
        self._paces_ahead = not is_loopback(self.api_url) if limits_proactively is None else limits_proactively
        self.bot_token = bot_token
        self._identity: Identity | None = None
        self._scopes: frozenset[str] | None = None
        self.unavailable_methods: set[str] = set()
        self.known_channel_ids: set[str] = set()
        self.web = AsyncWebClient(
            token=bot_token,
            base_url=api_url,
            timeout=CALL_SECONDS_MAX,
            retry_handlers=[IdempotentCallRetry(max_retry_count=2)],
        )
        if is_loopback(self.api_url):
            # The SDK uses a proxy from the environment even if NO_PROXY excludes the host.
            self.web.proxy = None

    @property
    def identity(self) -> Identity:
        """The bot's identity. Raises RuntimeError before `sign_in` or `open_session`."""
        if self._identity is None:
            raise RuntimeError("the Slack client is not open")
        return self._identity

    def tokenless_sdk_client(self) -> AsyncWebClient:
        """Returns a client for Bolt, which makes no calls itself and gets a token with each authorization."""
        return AsyncWebClient(base_url=str(self.api_url), proxy=self.web.proxy)

    @property
    def proxy(self) -> str | None:
        return self.web.proxy

    @property
    def session(self) -> aiohttp.ClientSession:
        """The shared session. Raises RuntimeError before `sign_in` or `open_session`, and after `close`."""
        if self.web.session is None or self.web.session.closed:
            raise RuntimeError("the Slack client is not open")
        return self.web.session

    async def sign_in(self) -> Identity:
        """Opens the session and fetches the identity that the token belongs to.

        Raises ConfigurationError if Slack refuses the token or cannot be reached."""
        self.open_session()
        try:
            answer = await self.call_at_startup("auth.test", setting="THREADHAND_SLACK_BOT_TOKEN")
        except BaseException:
            await self.close()
            raise
        self._identity = Identity(
            team_id=get_text(answer, "team_id"),
            user_id=get_text(answer, "user_id"),
            bot_id=get_text(answer, "bot_id"),
            team_name=get_text(answer, "team"),
            name=get_text(answer, "user") or "threadhand",
            scopes=self._scopes,
        )
        return self._identity

    def open_session(self, identity: Identity | None = None) -> None:
        """Opens the session, for a client without a token or with a known `identity`."""
        self._identity = identity
        self.web.session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS_MAX), trace_configs=[self._trace] if self._trace else None
        )

    def set_token(self, bot_token: str) -> None:
        """Replaces the token for future calls."""
        self.bot_token = self.web.token = bot_token

    async def close(self) -> None:
        if self.web.session is not None:
            await self.web.session.close()

    async def call_at_startup(self, method: str, *, setting: str, token: str | None = None) -> JsonObject:
        """Calls a method at startup. Raises TokenRefused, which names the token's setting, if Slack answers with an
        error, and ConfigurationError if the call fails in another way.

        Waits out rate limits, however long they last."""
        while True:
            try:
                return await self._call(method, "POST", token=token)
            except SurfaceRateLimited as limit:
                log.warning("slack: rate limited at startup, waiting")
                await asyncio.sleep(limit.retry_after_seconds)
            except (SurfaceRefused, SurfaceUnavailable) as error:
                raise TokenRefused(
                    f"Slack refuses the token in {setting} ({error.code}):"
                    " copy it again from your app's page at api.slack.com/apps."
                ) from error
            except SurfaceError as error:
                raise ConfigurationError(
                    f"Slack cannot be reached at {self.api_url}:"
                    " check the network, the proxy and THREADHAND_SLACK_API_URL."
                ) from error

    async def read(self, method: str, parameters: Parameters) -> JsonObject:
        """Calls a read-only method. Raises a subclass of SurfaceError."""
        return await self._call(method, "GET", params=parameters)

    async def look_up(
        self, method: str, parameters: Parameters, *, seconds_max: float = ACKNOWLEDGE_SECONDS
    ) -> JsonObject:
        """Calls a read-only method like `read`, but takes at most `seconds_max`, or less inside `acknowledging`."""
        try:
            async with asyncio.timeout(lookup_seconds_left(seconds_max)):
                return await self.read(method, parameters)
        except TimeoutError as error:
            raise SurfaceUnclear("Slack did not answer in time") from error

    async def write(self, method: str, body: JsonObject, *, precondition: Precondition | None = None) -> JsonObject:
        """Calls a method that changes something, with arguments as JSON. Raises the same exceptions as `read`."""
        return await self._call(method, "POST", body=body, precondition=precondition)

    async def open_direct_message(self, person_id: str) -> str:
        """Returns the id of the direct message with a person. Raises the same exceptions as `read`."""
        channel_id = get_text(await self.write("conversations.open", {"users": person_id}), "channel", "id")
        self.known_channel_ids.add(channel_id)
        return channel_id

    async def write_form(
        self, method: str, parameters: Parameters, *, precondition: Precondition | None = None
    ) -> JsonObject:
        """Calls a method that changes something and does not accept JSON (files, reactions). Raises the same exceptions
        as `read`."""
        return await self._call(method, "POST", params=parameters, precondition=precondition)

    async def write_secrets(self, method: str, data: Mapping[str, str]) -> JsonObject:
        """Calls a method with arguments that must not be in the URL. Raises the same exceptions as `read`."""
        return await self._call(method, "POST", data=data)

    async def _call(
        self,
        method: str,
        verb: str,
        *,
        params: Parameters | None = None,
        body: JsonObject | None = None,
        data: Mapping[str, str] | None = None,
        token: str | None = None,
        precondition: Precondition | None = None,
    ) -> JsonObject:
        """Calls the method within the rate limit. Retries if Slack refuses the call with a rate limit, because Slack
        then did not execute it."""
        channel = str((body or params or {}).get("channel", ""))
        allowances = rate_limits_for_call(
            token or self.bot_token, method, channel, limits_proactively=self._paces_ahead
        )
        headers = {"Authorization": f"Bearer {token}"} if token else None
        may_wait = method not in NEVER_WAITING_METHODS
        attempts, wait_seconds_max = (RATE_LIMIT_ATTEMPTS, WAIT_SECONDS_MAX) if may_wait else (1, 0)
        is_idempotent = method in IDEMPOTENT_METHODS
        while True:
            await self._limiter.admit(allowances, wait_seconds_max=wait_seconds_max, oversleeps=is_idempotent)
            if precondition is not None:
                await precondition()
            attempts -= 1
            try:
                return await self._answer(method, verb, params, body, data, headers)
            except SurfaceRateLimited as limit:
                seconds = limit.retry_after_seconds
                await self._limiter.record_refusal(allowances, seconds=seconds)
                if not attempts or seconds > WAIT_SECONDS_MAX:
                    raise

    async def _answer(
        self,
        method: str,
        verb: str,
        params: Parameters | None,
        body: JsonObject | None,
        data: Mapping[str, str] | None,
        headers: dict[str, str] | None,
    ) -> JsonObject:
        calls = cast(_Calls, self.web)
        try:
            answer = await calls.api_call(method, http_verb=verb, params=params, json=body, data=data, headers=headers)
        except SlackApiError as error:
            raise _translate_error(cast(object, error.response)) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise SurfaceUnclear(f"Slack gave no answer ({type(error).__name__})") from error
        except (SlackClientError, AttributeError, ValueError) as error:
            # AttributeError: the SDK calls `.get` on a plain-text response, for example from a broken proxy.
            raise SurfaceUnclear(f"Slack's answer cannot be parsed ({type(error).__name__})") from error
        if method == "auth.test" and (scopes := answer.headers.get("x-oauth-scopes")) is not None:
            self._scopes = frozenset(one.strip() for one in scopes.split(","))
        return get_object(answer.data)


ClientFor = Callable[[Address], Awaitable[SlackClient]]
"""Returns the client of an address's workspace. Raises SurfaceRefused or StorageUnavailable."""


def _translate_error(response: object) -> SurfaceError:
    if isinstance(response, aiohttp.ClientResponse):
        return SurfaceUnclear(f"Slack's answer is not JSON (status {response.status})")
    answer = cast(_Answer, response)
    status, code = answer.status_code, get_text(answer.data, "error")
    if status == 429 or code in _RATE_CODES:
        return SurfaceRateLimited(
            "Slack's rate limit is reached", retry_after_seconds=retry_after_seconds(answer.headers)
        )
    if status >= 500 or code in _UNCLEAR_CODES or not code:
        return SurfaceUnclear(f"Slack failed ({code or status})")
    kind = SurfaceUnavailable if code in _UNAVAILABLE_CODES else SurfaceRefused
    return kind(f"Slack refused ({code})", code=code)
