"""Background tasks and HTTP servers on this machine's loopback: what every simulated service is served with."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

HOST = "127.0.0.1"
ResultT = TypeVar("ResultT")

log = logging.getLogger(__name__)
_running: set[asyncio.Task[object]] = set()
SHUTDOWN_SECONDS = 0.05
"""How long a request may take to end when its server stops, twice: a page that is open never ends its own."""
_LOOP_TURNS_PER_ACCEPT = 5


class PortInUse(Exception):
    """The port that a server was given cannot be bound."""

    def __init__(self, port: int) -> None:
        super().__init__(f"Port {port} of this machine is in use.")
        self.port = port


def spawn(work: Coroutine[object, object, ResultT], *, name: str) -> asyncio.Task[ResultT]:
    """Starts a task and keeps a reference to it. Logs its error with a traceback."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[object]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the task %s failed", task.get_name(), exc_info=error)


async def cancel(task: asyncio.Task[ResultT]) -> None:
    """Cancels the task and waits until it has ended. Never raises the task's error."""
    task.cancel()
    await asyncio.wait([task])


async def start_listening(runner: web.AppRunner, port: int) -> int:
    """Binds the server to 127.0.0.1 and returns its port; port 0 picks a free one. Raises PortInUse."""
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortInUse(port) from error
    return int(runner.addresses[0][1])


async def stop_server(runner: web.BaseRunner) -> None:
    """Stops accepting connections, then cleans the server up.

    asyncio creates the transport of an accepted connection a few turns of the loop later. If the server is closed in
    between, that fails and the connection stays open with no handler (CPython issue 109564), so accepting stops first.
    """
    loop = asyncio.get_running_loop()
    for site in runner.sites:
        server = getattr(site, "_server", None)
        if isinstance(server, asyncio.Server):
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
    for _ in range(_LOOP_TURNS_PER_ACCEPT):
        await asyncio.sleep(0)
    await runner.cleanup()


@asynccontextmanager
async def serve_on_loopback(app: web.Application, *, port: int) -> AsyncGenerator[str, None]:
    """Context manager: serves the application and yields its base URL, without a final slash. Raises PortInUse."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    bound_port = await start_listening(runner, port)
    try:
        yield f"http://{HOST}:{bound_port}"
    finally:
        await stop_server(runner)


def date_answers(app: web.Application, ahead_seconds: Callable[[], float]) -> None:
    """Sets the Date of every answer, so many seconds ahead of this machine's clock."""

    async def date(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = formatdate(time.time() + ahead_seconds(), usegmt=True)

    app.on_response_prepare.append(date)


@web.middleware
async def refuse_foreign_origins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keeps web pages of other origins from acting here, also through a host name rebound to 127.0.0.1."""
    host = urlsplit(f"//{request.host}").hostname
    origin = request.headers.get("Origin")
    if host not in (HOST, "localhost", "::1") or (origin is not None and urlsplit(origin).netloc != request.host):
        raise web.HTTPForbidden(text="This server is for this machine only.")
    return await handler(request)
