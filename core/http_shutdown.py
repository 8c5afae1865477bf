"""Closes HTTP servers without breaking connections that arrive during the shutdown."""

import asyncio

from aiohttp import web

_TURNS_OF_AN_ACCEPT = 5


async def shut_down_server(runner: web.BaseRunner) -> None:
    """Like `runner.cleanup()`, but a connection that arrives during the shutdown is either refused, or served and
    then closed."""
    listening = (getattr(site, "_server", None) for site in runner.sites)
    await stop_accepting(*(each for each in listening if isinstance(each, asyncio.Server)))
    await runner.cleanup()


async def stop_accepting(*servers: asyncio.Server) -> None:
    """Stops accepting connections and waits until each accepted connection has its transport, so that closing is safe.

    asyncio creates the transport some event loop iterations after it accepts the connection. If the server is closed in
    between, creating the transport fails, and the connection stays open without a reader (CPython issue 109564)."""
    loop = asyncio.get_running_loop()
    for server in servers:
        for each in server.sockets:
            loop.remove_reader(each.fileno())
    for _ in range(_TURNS_OF_AN_ACCEPT):
        await asyncio.sleep(0)
