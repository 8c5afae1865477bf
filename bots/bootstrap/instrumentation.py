"""What is measured where the program meets others: the model, the chat platforms."""

import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from yarl import URL

from bots.delivery.content import Content
from bots.delivery.poster import DeliverySurface
from bots.delivery.rate_limiter import RateLimiter
from bots.observability.metrics import Metrics
from bots.web.health import MonitoringDeps
from core.domain.threads import Address
from core.observability import Figures
from core.ports import (
    LLM,
    ModelDelta,
    ModelFinished,
    ModelRequest,
    OutgoingFile,
    Precondition,
    Reaction,
)

RecordPlatformCall = Callable[[str, str, int, float], None]
"""Told of each call of a platform: the platform, the method, the status (0: no answer) and the seconds."""

_SLACK_METHOD = re.compile(r"/api/([a-z][A-Za-z.]{2,60})")
_DISCORD_PATH = re.compile(r"/api/v\d+((?:/[^/]+){1,9})")
_WORD = re.compile(r"[a-z][a-z-]{1,19}|@me|@original")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilityDeps:
    """`figures` is what runs tell; `watch` what is answered. Checks of further parts may be added to it. At `limiter`
    calls of the platforms wait for their turn."""

    figures: Figures
    watch: MonitoringDeps
    limiter: RateLimiter

    @property
    def metrics(self) -> Metrics:
        return self.watch.metrics


class InstrumentedModel:
    """Another model adapter, each of whose calls is timed."""

    def __init__(self, llm: LLM, figures: Figures) -> None:
        self._llm = llm
        self._figures = figures

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        last: ModelFinished | None = None
        start = time.monotonic()
        with self._figures.timed("model", model=request.model) as timing:
            async with aclosing(self._llm.stream(request)) as deltas:
                async for delta in deltas:
                    if timing.first_seconds is None:
                        timing.first_seconds = time.monotonic() - start
                    if isinstance(delta, ModelFinished):
                        last = delta
                        break
                    yield delta
        # outside: whoever reads it leaves then, and that is no answer left early
        if last is not None:
            yield last


class InstrumentedSurface:
    """Another chat surface, whose posts, edits, uploads, looks and reactions are timed."""

    def __init__(self, platform: str, surface: DeliverySurface, figures: Figures) -> None:
        self._platform = platform
        self._surface = surface
        self._figures = figures

    @property
    def answer_limit(self) -> int:
        return self._surface.answer_limit

    @property
    def file_bytes_max(self) -> int:
        return self._surface.file_bytes_max

    @property
    def edit_interval_seconds(self) -> float:
        return self._surface.edit_interval_seconds

    async def post(
        self, address: Address, content: Content, *, delivery_id: str, precondition: Precondition
    ) -> str:
        with self._figures.timed("delivery", platform=self._platform, action="post"):
            return await self._surface.post(
                address, content, delivery_id=delivery_id, precondition=precondition
            )

    async def edit(
        self, address: Address, message_ref: str, content: Content, *, precondition: Precondition
    ) -> None:
        with self._figures.timed("delivery", platform=self._platform, action="edit"):
            await self._surface.edit(address, message_ref, content, precondition=precondition)

    async def upload(
        self, address: Address, file: OutgoingFile, *, delivery_id: str, precondition: Precondition
    ) -> str:
        with self._figures.timed("delivery", platform=self._platform, action="upload"):
            return await self._surface.upload(
                address, file, delivery_id=delivery_id, precondition=precondition
            )

    async def find(self, address: Address, delivery_id: str) -> str | None:
        with self._figures.timed("delivery", platform=self._platform, action="find"):
            return await self._surface.find(address, delivery_id)

    async def react(
        self,
        address: Address,
        message_ref: str,
        reaction: Reaction | None,
        *,
        precondition: Precondition | None = None,
    ) -> None:
        with self._figures.timed("delivery", platform=self._platform, action="react"):
            await self._surface.react(address, message_ref, reaction, precondition=precondition)

    def typing(self, address: Address) -> AbstractAsyncContextManager[None]:
        return self._surface.typing(address)


def build_http_trace(platform: str, called: RecordPlatformCall) -> aiohttp.TraceConfig:
    """For a platform's own client: tells of each attempt of each call, also of those that its SDK repeats by itself."""

    def told(params_url: URL, method: str, status: int, context: SimpleNamespace) -> None:
        seconds = time.monotonic() - getattr(context, "start", time.monotonic())
        called(platform, platform_call_label(platform, method, params_url), status, seconds)

    async def on_start(
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        _params: aiohttp.TraceRequestStartParams,
    ) -> None:
        context.start = time.monotonic()

    async def on_end(
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        params: aiohttp.TraceRequestEndParams,
    ) -> None:
        told(params.url, params.method, params.response.status, context)

    async def on_error(
        _session: aiohttp.ClientSession,
        context: SimpleNamespace,
        params: aiohttp.TraceRequestExceptionParams,
    ) -> None:
        told(params.url, params.method, 0, context)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(on_start)
    trace.on_request_end.append(on_end)
    trace.on_request_exception.append(on_error)
    return trace


def platform_call_label(platform: str, method: str, url: URL) -> str:
    """The call as a pattern: Slack's method, Discord's route with `*` for ids and tokens; `other` for files."""
    if platform == "slack":
        found = _SLACK_METHOD.fullmatch(url.path)
        return found[1] if found else "other"
    found = _DISCORD_PATH.fullmatch(url.path)
    if found is None:
        return "other"
    parts = found[1].split("/")[1:]
    return f"{method} /" + "/".join(part if _WORD.fullmatch(part) else "*" for part in parts)
