"""Builds and serves the aiohttp applications: the HTTP API, and the health endpoints of workers."""

import errno
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from bots.web import agents, health, runs, sandbox_files, schedules, threads, upload_spool
from bots.web.auth import API_TOKEN, api_access_middleware, check_exposure
from bots.web.connection_limits import ConnectionLimits, LimitedSite, limits_of_this_process
from bots.web.deps import DEPS, WebDeps
from bots.web.errors import error_middleware
from bots.web.health import MONITORING, MonitoringDeps
from bots.web.port_proxy import port_proxies_context, port_proxy_middleware
from bots.web.request_parsing import JSON_BYTES_MAX
from bots.web.takeover import routes
from bots.web.takeover.sessions import TAKEOVER_SESSIONS, TakeoverSessions
from core import http_shutdown
from core.domain.errors import ConfigurationError
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 3.0


def web_app(deps: WebDeps, monitoring: MonitoringDeps | None = None) -> web.Application:
    """Returns the application of the HTTP API.

    The caller may add routes before serving it. Added routes outside `/api` must do their own access checks."""
    app = web.Application(
        middlewares=[health.metrics_middleware, error_middleware, port_proxy_middleware, api_access_middleware],
        client_max_size=JSON_BYTES_MAX,
    )
    app[DEPS] = deps
    app[API_TOKEN] = deps.api_token
    app[MONITORING] = monitoring or MonitoringDeps()
    app[runs.OPEN_STREAMS] = set()
    app[TAKEOVER_SESSIONS] = TakeoverSessions(deps)
    app.cleanup_ctx.append(routes.takeover_sessions_context)
    app.cleanup_ctx.append(port_proxies_context)
    app.cleanup_ctx.append(_old_uploads_context)
    app.on_shutdown.append(runs.close_streams)
    app.add_routes(
        [
            web.post("/api/thread", threads.create_thread),
            web.get("/api/threads", threads.list_threads),
            web.get("/api/thread/{thread_id}", threads.show_thread),
            web.get("/api/thread/{thread_id}/runs", runs.list_runs),
            web.post("/api/thread/{thread_id}/messages", threads.add_message),
            web.get("/api/thread/{thread_id}/messages", threads.list_messages),
            web.get("/api/thread/{thread_id}/messages/{message_id}/image", threads.send_image),
            web.get("/api/agent-run/{run_id}", runs.show_run),
            web.get("/api/agent-run/{run_id}/stream", runs.stream_run, allow_head=False),
            web.post("/api/agent-run/{run_id}/stop", runs.stop_run),
            web.get("/api/sandboxes/{sandbox_id}/files", sandbox_files.list_files),
            web.get("/api/sandboxes/{sandbox_id}/files/content", sandbox_files.send_file),
            web.get("/files/{token}", sandbox_files.send_linked_file),
            web.get("/preview/{token}", sandbox_files.show_preview),
            web.get("/preview/{token}/{path:.*}", sandbox_files.show_preview),
            *agents.routes(),
            *schedules.routes(),
            web.get("/api/usage", runs.show_usage),
            *routes.routes(),
            *health.routes(),
        ]
    )
    return app


def monitoring_app(monitoring: MonitoringDeps, api_token: str) -> web.Application:
    """Returns the application of a worker process, which serves only health checks and metrics."""
    app = web.Application(middlewares=[health.metrics_middleware, error_middleware, api_access_middleware])
    app[API_TOKEN], app[MONITORING] = api_token, monitoring
    app.add_routes(health.routes())
    return app


@asynccontextmanager
async def serve_app(
    app: web.Application,
    *,
    host: str,
    port: int,
    setting: str = "THREADHAND_HTTP_PORT",
    limits: ConnectionLimits | None = None,
) -> AsyncGenerator[int, None]:
    """Context manager: serves the application inside the block. Yields the port.

    If `port` is 0, the system chooses a free port. `setting` is the variable that error messages suggest to change.
    Raises ConfigurationError if the address is unavailable, or if other machines could reach the API without a token.
    """
    check_exposure(host, app[API_TOKEN])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    try:
        await runner.setup()
        try:
            await LimitedSite(runner, host, port, limits or limits_of_this_process()).start()
        except OSError as error:
            raise ConfigurationError(explain_bind_error(host, port, error, setting)) from error
        bound = int(runner.addresses[0][1])
        log.info("the HTTP API listens on %s port %d", host, bound)
        yield bound
    finally:
        await http_shutdown.shut_down_server(runner)


def explain_bind_error(host: str, port: int, error: OSError, setting: str = "THREADHAND_HTTP_PORT") -> str:
    """Returns a sentence that explains why the server cannot listen and which setting to change."""
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use by another program: stop it, or set {setting}."
    if error.errno == errno.EACCES:
        return f"Port {port} is reserved for the system: set {setting} to one above 1023."
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine: set THREADHAND_HTTP_HOST."
    return f"The HTTP API cannot listen on {host} port {port}: {error.strerror or error}."


async def _old_uploads_context(app: web.Application) -> AsyncGenerator[None, None]:
    """Periodically deletes old uploads while the application runs. Registered in aiohttp's `cleanup_ctx`."""
    cleaner = spawn(upload_spool.delete_old_uploads_periodically(app[DEPS].spool_folder), name="upload cleaner")
    yield
    await cancel(cleaner)
