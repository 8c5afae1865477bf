"""The HTTP API put together, and the server that carries it."""

import errno
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from bots.web import health, preview, runs, sandboxes, threads, upload_spool
from bots.web.auth import TOKEN, check_exposure, require_permission
from bots.web.deps import PORTS, WebPorts
from bots.web.errors import answer_errors
from bots.web.exposed_ports.proxy import gates_of, lead_to_ports
from bots.web.health import WATCH, Watch
from bots.web.requests import JSON_BYTES_MAX
from bots.web.takeover import routes
from bots.web.takeover.sessions import DESK, TakeoverDesk
from core import server_shutdown
from core.domain.errors import ConfigurationError
from core.tasks import cancel, spawn

log = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 3.0


def web_app(ports: WebPorts, watch: Watch | None = None) -> web.Application:
    """All routes of the API. Other adapters may add theirs before it is served; they bring their own checks."""
    app = web.Application(
        middlewares=[health.count_requests, answer_errors, lead_to_ports, require_permission],
        client_max_size=JSON_BYTES_MAX,
    )
    app[PORTS] = ports
    app[TOKEN] = ports.api_token
    app[WATCH] = watch or Watch()
    app[runs.STREAMS] = set()
    app[DESK] = TakeoverDesk(ports)
    app.cleanup_ctx.append(routes.desk_of)
    app.cleanup_ctx.append(gates_of)
    app.cleanup_ctx.append(_uploads_swept)
    app.on_shutdown.append(runs.end_streams)
    app.add_routes(
        [
            web.post("/api/thread", threads.create_thread),
            web.get("/api/thread/{thread_id}", threads.show_thread),
            web.post("/api/thread/{thread_id}/messages", threads.add_message),
            web.get("/api/thread/{thread_id}/messages", threads.list_messages),
            web.get("/api/agent-run/{run_id}", runs.show_run),
            web.get("/api/agent-run/{run_id}/stream", runs.stream_run, allow_head=False),
            web.post("/api/agent-run/{run_id}/stop", runs.stop_run),
            web.get("/api/sandboxes/{sandbox_id}/files", sandboxes.list_files),
            web.get(
                "/api/sandboxes/{sandbox_id}/files/content", sandboxes.send_file, allow_head=False
            ),
            web.get("/files/{token}", sandboxes.send_linked_file, allow_head=False),
            web.get("/preview/{token}", preview.show, allow_head=False),
            web.get("/preview/{token}/{path:.*}", preview.show, allow_head=False),
            *routes.routes(),
            *health.routes(),
        ]
    )
    return app


def watched_app(watch: Watch, api_token: str) -> web.Application:
    """What a process that only works answers: its health and its figures."""
    app = web.Application(middlewares=[health.count_requests, answer_errors, require_permission])
    app[TOKEN], app[WATCH] = api_token, watch
    app.add_routes(health.routes())
    return app


@asynccontextmanager
async def served(
    app: web.Application, *, host: str, port: int, setting: str = "THREADHAND_HTTP_PORT"
) -> AsyncGenerator[int, None]:
    """Serves the application while entered; yields the port, which the system chose where 0 was asked for.

    Raises ConfigurationError for an address that cannot be had, or that would be open to others without a token.
    """
    check_exposure(host, app[TOKEN])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    try:
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigurationError(unavailable(host, port, error, setting)) from error
        bound = int(runner.addresses[0][1])
        log.info("the HTTP API listens on %s port %d", host, bound)
        yield bound
    finally:
        await server_shutdown.end(runner)


def unavailable(host: str, port: int, error: OSError, setting: str = "THREADHAND_HTTP_PORT") -> str:
    """One sentence with the remedy, for an address that cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use by another program: stop it, or set {setting}."
    if error.errno == errno.EACCES:
        return f"Port {port} is reserved for the system: set {setting} to one above 1023."
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: set THREADHAND_HTTP_HOST."
    return f"The HTTP API cannot listen on {host} port {port}: {error.strerror or error}."


async def _uploads_swept(app: web.Application) -> AsyncGenerator[None, None]:
    """For `cleanup_ctx`."""
    sweeping = spawn(upload_spool.keep_swept(app[PORTS].spool_folder), name="upload sweeper")
    yield
    await cancel(sweeping)
