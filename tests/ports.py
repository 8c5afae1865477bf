"""TCP ports of this machine: a free one, and one in front of a server that listens on a unix socket."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from core.tasks import cancel
from tests.support.narrow import require


def free_port() -> str:
    """Returns a port that nobody listens on, for an address that has to be known before its server starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def _always() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@asynccontextmanager
async def port_of(path: Path, *, is_open: asyncio.Event | None = None) -> AsyncGenerator[int]:
    """While `is_open` is not set nothing comes through, and nobody is told."""
    gate = is_open or _always()
    connections: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                while piece := await source.read(1 << 16):
                    await gate.wait()
                    target.write(piece)
                    await target.drain()
        finally:
            target.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = require(asyncio.current_task())
        connections.add(task)
        task.add_done_callback(connections.discard)
        there, back = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(connections):
            await cancel(task)
