"""HTTP routes for liveness, readiness and Prometheus metrics."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

from bots.observability.metrics import Metrics
from bots.web.runs import OPEN_STREAMS
from core.domain.errors import StorageUnavailable
from core.observability import Backlogs

log = logging.getLogger(__name__)

CHECK_SECONDS = 3.0

ReadinessCheck = Callable[[], Awaitable[str]]
"""Checks a part of the program. Returns an empty string if it works, otherwise the reason as a public sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringDeps:
    """Dependencies of the health routes. `checks` maps the name of each required part to its readiness check."""

    metrics: Metrics = field(default_factory=Metrics)
    backlogs: Backlogs | None = None
    checks: dict[str, ReadinessCheck] = field(default_factory=dict[str, ReadinessCheck])


MONITORING: web.AppKey[MonitoringDeps] = web.AppKey("monitoring", MonitoringDeps)


def routes() -> list[web.RouteDef]:
    return [web.get("/healthz", show_liveness), web.get("/readyz", show_readiness), web.get("/metrics", show_metrics)]


@web.middleware
async def metrics_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts responses by method, route and status. Must be the outermost middleware, to count error responses too."""
    response = await handler(request)
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "none"
    request.app[MONITORING].metrics.count_response(request.method, route, response.status)
    return response


async def show_liveness(_: web.Request) -> web.Response:
    """`GET /healthz`: responds with status 200 as long as the process is alive."""
    return web.json_response({"status": "ok"})


async def show_readiness(request: web.Request) -> web.Response:
    """`GET /readyz`: responds with status 200 if all parts work, otherwise 503. The body lists each part's state."""
    checks = request.app[MONITORING].checks
    sentences = await asyncio.gather(*(_problem(name, check) for name, check in checks.items()))
    parts = {name: sentence or "ready" for name, sentence in zip(checks, sentences, strict=True)}
    failing = [name for name, sentence in zip(checks, sentences, strict=True) if sentence]
    if failing:
        message = f"Not ready: {', '.join(failing)}."
        answer = {"error": "not_ready", "message": message, "parts": parts}
        return web.json_response(answer, status=503)
    return web.json_response({"status": "ready", "parts": parts})


async def _problem(name: str, check: ReadinessCheck) -> str:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except Exception as error:  # noqa: BLE001,RUF100 - whatever the error is, the part does not work
        log.warning("not ready: %s (%s)", name, type(error).__name__)
        return "It does not answer."


async def show_metrics(request: web.Request) -> web.Response:
    """`GET /metrics`: serves Prometheus metrics, without the database metrics if the database is unavailable."""
    monitoring = request.app[MONITORING]
    if OPEN_STREAMS in request.app:
        monitoring.metrics.streams.set(len(request.app[OPEN_STREAMS]))
    backlog = None
    if monitoring.backlogs is not None:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                backlog = await monitoring.backlogs.backlog()
        except (StorageUnavailable, TimeoutError) as error:
            log.warning("the backlog cannot be counted: %s", type(error).__name__)
    text = monitoring.metrics.render_text(backlog)
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=text, headers=headers)
