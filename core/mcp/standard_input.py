"""Standard input as lines that somebody can stop waiting for."""

import asyncio
import logging
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 8 * 1024 * 1024
STDIN = 0


@asynccontextmanager
async def standard_input() -> AsyncGenerator[anyio.AsyncFile[str] | None, None]:
    """Its lines; None where reading never waits (a file, the null device), so that the SDK may read it in a thread.

    A thread that waits for a pipe cannot be cancelled: the program would outlive a signal until its client went.
    Meanwhile children of the program find nothing on their standard input.
    """
    mode = os.fstat(STDIN).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(STDIN)):
        yield None
        return
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    pipe = os.fdopen(os.dup(STDIN), "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    try:
        # the SDK only iterates over it
        yield cast("anyio.AsyncFile[str]", _lines(reader))
    finally:
        os.dup2(pipe.fileno(), STDIN)
        transport.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    try:
        while line := await reader.readline():
            yield line.decode("utf-8", "replace")
    except ValueError:
        log.warning("a message of the MCP client is longer than %d bytes", LINE_BYTES_MAX)
