"""A web server of a test, on a free port of this machine."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from core import http_shutdown

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve_http(served: web.Application | Handler) -> AsyncGenerator[str]:
    """Serves an application, or a handler at every address, inside the block. Yields `http://127.0.0.1:PORT`."""
    app = served if isinstance(served, web.Application) else web.Application(client_max_size=1 << 30)
    if app is not served:
        app.router.add_route("*", "/{path:.*}", served)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await http_shutdown.shut_down_server(runner)
