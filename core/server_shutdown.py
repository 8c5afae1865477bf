"""The end of a server."""

import asyncio

from aiohttp import web

_TURNS_OF_AN_ACCEPT = 5


async def shut_down_server(runner: web.BaseRunner) -> None:
    """As `cleanup`, but whoever comes at the last moment is refused or served and closed."""
    listening = (getattr(site, "_server", None) for site in runner.sites)
    await stop_accepting(*(each for each in listening if isinstance(each, asyncio.Server)))
    await runner.cleanup()


async def stop_accepting(*servers: asyncio.Server) -> None:
    """Whoever came has a transport afterwards, and nobody comes any more; the servers can be closed.

    asyncio gives a connection its transport some turns of the loop after it has accepted it. Where the server was
    closed meanwhile that fails, and leaves the connection open with nobody at this end (CPython issue 109564). So
    accepting stops first.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for each in server.sockets:
            loop.remove_reader(each.fileno())
    for _ in range(_TURNS_OF_AN_ACCEPT):
        await asyncio.sleep(0)
