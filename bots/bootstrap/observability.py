"""Builds the observability of this process: metrics, traces, health checks, and wrappers that time calls."""

import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from yarl import URL

from bots.bootstrap.process_messaging import Messaging
from bots.delivery.rate_limiter import RateLimiter
from bots.observability.metrics import Metrics
from bots.observability.tracing import open_tracing
from bots.settings import Settings
from bots.web.health import MonitoringDeps, ReadinessCheck
from core.domain.threads import Address, Usage
from core.observability import RunMetrics, SandboxOccupancy
from core.ports import LLM, ModelDelta, ModelFinished, ModelRequest
from core.run.worker import Worker
from core.stores import Conversations
from core.tasks import cancel, spawn
from core.tools.catalogue import all_tools
from storage.sql.database import Database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlBacklogs

RecordPlatformCall = Callable[[str, str, int, float], None]
"""Records an HTTP call to a platform. Arguments: platform, method, HTTP status (0: no response), seconds."""

_SLACK_METHOD = re.compile(r"/api/([a-z][A-Za-z.]{2,60})")
_DISCORD_PATH = re.compile(r"/api/v\d+((?:/[^/]+){1,9})")
_PROBE_ADDRESS = Address(platform="api", workspace_id="api", channel_id="api", thread_key="readiness")
_WORD = re.compile(r"[a-z][a-z-]{1,19}|@me|@original")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilityDeps:
    """The observability objects of this process.

    `run_metrics` records metrics of runs, `health` serves health checks and metrics, and `limiter` delays calls to the
    chat platforms."""

    run_metrics: RunMetrics
    health: MonitoringDeps
    limiter: RateLimiter

    @property
    def metrics(self) -> Metrics:
        return self.health.metrics


class InstrumentedModel:
    """Wraps a model client, times each of its calls, and passes the usage of each response to `observe`."""

    def __init__(
        self,
        llm: LLM,
        metrics: RunMetrics,
        observe: Callable[[ModelRequest, Usage], None] = lambda _request, _usage: None,
    ) -> None:
        self._llm = llm
        self._metrics = metrics
        self._observe = observe

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        last: ModelFinished | None = None
        start = time.monotonic()
        with self._metrics.time_step("model", model=request.model) as timing:
            async with aclosing(self._llm.stream(request)) as deltas:
                async for delta in deltas:
                    if timing.first_seconds is None:
                        timing.first_seconds = time.monotonic() - start
                    if isinstance(delta, ModelFinished):
                        last, timing.usage = delta, delta.usage
                        break
                    yield delta
        # Yield outside the timer, because the consumer closes the generator here and the timer would count that as an
        # abandoned call.
        if last is not None:
            if last.usage is not None:
                self._observe(request, last.usage)
            yield last


def build_http_trace(platform: str, record_call: RecordPlatformCall) -> aiohttp.TraceConfig:
    """Returns an aiohttp trace configuration that records every HTTP attempt, including the SDK's own retries."""

    def record(url: URL, method: str, status: int, context: SimpleNamespace) -> None:
        seconds = time.monotonic() - getattr(context, "start", time.monotonic())
        record_call(platform, platform_call_label(platform, method, url), status, seconds)

    async def on_start(
        _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceRequestStartParams
    ) -> None:
        context.start = time.monotonic()

    async def on_end(
        _session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        record(params.url, params.method, params.response.status, context)

    async def on_error(
        _session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams
    ) -> None:
        record(params.url, params.method, 0, context)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(on_start)
    trace.on_request_end.append(on_end)
    trace.on_request_exception.append(on_error)
    return trace


def platform_call_label(platform: str, method: str, url: URL) -> str:
    """Returns a metric label for a platform call, without IDs or tokens.

    Returns the method name for Slack, the route with `*` for IDs and tokens for Discord, and `other` for other URLs."""
    if platform == "slack":
        found = _SLACK_METHOD.fullmatch(url.path)
        return found[1] if found else "other"
    found = _DISCORD_PATH.fullmatch(url.path)
    if found is None:
        return "other"
    parts = found[1].split("/")[1:]
    return f"{method} /" + "/".join(part if _WORD.fullmatch(part) else "*" for part in parts)


@asynccontextmanager
async def open_observability(
    settings: Settings, database: Database, messaging: Messaging
) -> AsyncGenerator[ObservabilityDeps]:
    """Context manager: metrics and tracing are active inside the block.

    Raises ConfigurationError if tracing is configured but its packages are not installed."""
    metrics = Metrics(models=(settings.model, *settings.fallback_models, settings.embedding_model), tools=all_tools())
    checks = {"database": database_check(SqlConversations(database)), **messaging_checks(messaging)}
    health = MonitoringDeps(metrics=metrics, backlogs=SqlBacklogs(database), checks=checks)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cancel, spawn(metrics.measure_loop_lag(), name="loop lag"))
        run_metrics: RunMetrics = metrics
        if settings.otel_endpoint:
            run_metrics = await stack.enter_async_context(open_tracing(settings.otel_endpoint, metrics))
        limiter = RateLimiter(messaging.rates, waited=metrics.observe_rate_wait)
        yield ObservabilityDeps(run_metrics=run_metrics, health=health, limiter=limiter)


@asynccontextmanager
async def serve_worker_health(observability: ObservabilityDeps, settings: Settings) -> AsyncGenerator[int]:
    """Context manager: serves a worker's health checks and metrics inside the block.

    Yields the port, or 0 if the settings define no port. Raises ConfigurationError if the port cannot be used."""
    if settings.worker_http_port is None:
        yield 0
        return
    from bots.web.app import monitoring_app, serve_app  # imported only if it is served

    app = monitoring_app(observability.health, settings.api_token.get_secret_value())
    async with serve_app(
        app, host=settings.http_host, port=settings.worker_http_port, setting="THREADHAND_WORKER_HTTP_PORT"
    ) as port:
        yield port


def database_check(conversations: Conversations) -> ReadinessCheck:
    async def check() -> str:
        await conversations.find(_PROBE_ADDRESS)
        return ""

    return check


def messaging_checks(messaging: Messaging) -> dict[str, ReadinessCheck]:
    ping = messaging.ping
    if ping is None:
        return {}

    async def check() -> str:
        await ping()
        return ""

    return {"redis": check}


def worker_check(worker: Worker) -> ReadinessCheck:
    async def check() -> str:
        return worker.health_problem()

    return check


SANDBOX_WAIT_SECONDS = 60


def sandbox_check(occupancy: Callable[[], SandboxOccupancy]) -> ReadinessCheck:
    async def check() -> str:
        found = occupancy()
        if found.longest_wait_seconds < SANDBOX_WAIT_SECONDS:
            return ""
        return f"All {found.most} sandboxes are in use, and {found.waiting} threads wait for one."

    return check
