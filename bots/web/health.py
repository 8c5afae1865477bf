"""What watches the program: liveness, readiness, and a few numbers in Prometheus' text format."""

import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

from bots.web.ports import PORTS
from bots.web.refusals import Refusal
from bots.web.runs import STREAMS
from core.threads import Address

log = logging.getLogger(__name__)

_PROBE = Address(platform="api", workspace_id="api", channel_id="api", thread_key="readiness")


@dataclass(slots=True)
class Figures:
    started_at: float = field(default_factory=time.time)
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter[tuple[str, str, int]])


FIGURES: web.AppKey[Figures] = web.AppKey("figures", Figures)


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts answers by method, route and status; outermost, so that refusals count too."""
    response = await handler(request)
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else "none"
    request.app[FIGURES].requests[(request.method, route, response.status)] += 1
    return response


async def live(_: web.Request) -> web.Response:
    """`GET /healthz`: the process answers."""
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """`GET /readyz`: the database answers too."""
    try:
        await request.app[PORTS].conversations.find(_PROBE)
    except Exception as error:
        log.exception("not ready: the database does not answer")
        raise Refusal(503, "not_ready", "The database does not answer.") from error
    return web.json_response({"status": "ready"})


async def metrics(request: web.Request) -> web.Response:
    """`GET /metrics`."""
    figures = request.app[FIGURES]
    lines = [
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {figures.started_at:.3f}",
        "# TYPE threadhand_streams_open gauge",
        f"threadhand_streams_open {len(request.app[STREAMS])}",
        "# TYPE threadhand_http_requests_total counter",
    ]
    lines.extend(
        f'threadhand_http_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
        for (method, route, status), count in sorted(figures.requests.items())
    )
    return web.Response(
        body=("\n".join(lines) + "\n").encode(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )
