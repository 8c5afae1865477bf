"""Closing a server without losing the connections that arrive at the last moment."""

import asyncio

from aiohttp import web

_TURNS_OF_AN_ACCEPT = 5


async def shut_down_server(runner: web.BaseRunner) -> None:
    """Like `runner.cleanup()`, but a connection that arrives meanwhile is either refused, or served and closed."""
    listening = (getattr(site, "_server", None) for site in runner.sites)
    await stop_accepting(*(each for each in listening if isinstance(each, asyncio.Server)))
    await runner.cleanup()


async def stop_accepting(*servers: asyncio.Server) -> None:
    """Stops accepting connections and waits until every accepted one has its transport, so that closing is safe.

    asyncio creates the transport some loop iterations after it accepts a connection. If the server is closed in
    between, that fails and the connection stays open with no reader (CPython issue 109564).
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for each in server.sockets:
            loop.remove_reader(each.fileno())
    for _ in range(_TURNS_OF_AN_ACCEPT):
        await asyncio.sleep(0)
