"""The end of a server, while somebody comes."""

import asyncio
import socket

import pytest
from aiohttp import web

from core.http_shutdown import shut_down_server


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_at_the_last_moment_is_not_left_waiting(turns: int) -> None:
    runner = web.AppRunner(web.Application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    with socket.create_connection(runner.addresses[0]) as caller:
        for _ in range(turns):
            await asyncio.sleep(0)
        await shut_down_server(runner)
        caller.settimeout(30)
        assert await asyncio.to_thread(_heard, caller) == b""


def _heard(caller: socket.socket) -> bytes:
    try:
        return caller.recv(1)
    except ConnectionResetError:  # it was never accepted
        return b""
