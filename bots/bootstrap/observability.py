"""Everything that watches this process, put together."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from bots.bootstrap.instrumentation import ObservabilityDeps
from bots.bootstrap.messaging import Messaging
from bots.bootstrap.platforms import Platforms
from bots.bootstrap.readiness import database_check, discord_check, messaging_checks, slack_check
from bots.delivery.rate_limiter import RateLimiter
from bots.observability.metrics import Metrics
from bots.observability.tracing import CombinedMetrics, open_tracing
from bots.settings import Settings
from bots.web.app import monitoring_app, serve_app
from bots.web.health import MonitoringDeps
from core.observability import Figures
from core.tasks import cancel, spawn
from core.tools.catalogue import catalogue
from storage.sql.database import Database
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.run_claims import SqlBacklogs


@asynccontextmanager
async def open_observability(
    settings: Settings, database: Database, signals: Messaging
) -> AsyncGenerator[ObservabilityDeps]:
    """Measures while entered. Raises ConfigurationError where traces are wanted and cannot be made."""
    metrics = Metrics(
        models=(settings.model, *settings.fallback_models, settings.embedding_model),
        tools=catalogue(),
    )
    checks = {
        "database": database_check(SqlConversations(database)),
        **messaging_checks(signals),
    }
    watch = MonitoringDeps(metrics=metrics, backlogs=SqlBacklogs(database), checks=checks)
    async with AsyncExitStack() as stack:
        lag = spawn(metrics.watch_loop(), name="loop lag")
        stack.push_async_callback(cancel, lag)
        figures: Figures = metrics
        if settings.otel_endpoint:
            figures = CombinedMetrics(
                metrics, await stack.enter_async_context(open_tracing(settings.otel_endpoint))
            )
        limiter = RateLimiter(signals.rates, waited=metrics.waited)
        yield ObservabilityDeps(figures=figures, watch=watch, limiter=limiter)


def add_platform_checks(tower: ObservabilityDeps, platforms: Platforms) -> None:
    """This process listens to them: it is ready only while it hears them."""
    if platforms.slack is not None:
        tower.watch.checks["slack"] = slack_check(platforms.slack)
    if platforms.discord is not None:
        tower.watch.checks["discord"] = discord_check(platforms.discord)


@asynccontextmanager
async def serve_worker_health(tower: ObservabilityDeps, settings: Settings) -> AsyncGenerator[int]:
    """A worker tells its health and figures where a port is set; yields the port, or 0. Raises ConfigurationError."""
    if settings.worker_http_port is None:
        yield 0
        return
    app = monitoring_app(tower.watch, settings.api_token.get_secret_value())
    async with serve_app(
        app,
        host=settings.http_host,
        port=settings.worker_http_port,
        setting="THREADHAND_WORKER_HTTP_PORT",
    ) as port:
        yield port
