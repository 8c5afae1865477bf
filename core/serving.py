"""The end of a server of aiohttp's."""

import asyncio

from aiohttp import web

_TURNS_OF_AN_ACCEPT = 5


async def end(runner: web.BaseRunner) -> None:
    """As `cleanup`, but whoever comes at the last moment is refused or served and closed.

    asyncio gives a connection its transport some turns of the loop after it has accepted it. Where the server was
    closed meanwhile that fails, and leaves the connection open with nobody at this end (CPython issue 109564). So
    accepting stops first.
    """
    loop = asyncio.get_running_loop()
    for site in runner.sites:
        listening = getattr(site, "_server", None)
        for each in listening.sockets if isinstance(listening, asyncio.Server) else ():
            loop.remove_reader(each.fileno())
    for _ in range(_TURNS_OF_AN_ACCEPT):
        await asyncio.sleep(0)
    await runner.cleanup()
