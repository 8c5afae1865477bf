"""A file on its way into Discord: spooled to a temporary file, so that an upload can be repeated."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import IO

import discord

from bots.discord.limits import FILE_NAME_MAX, clip, encodable
from bots.discord.rest import delivery_marker
from bots.discord.rest.client import TOO_LARGE
from core.domain.errors import SurfaceRefused
from core.domain.messages import JsonObject
from core.ports import OutgoingFile


@asynccontextmanager
async def outgoing(
    file: OutgoingFile, *, bytes_max: int, delivery_id: str
) -> AsyncGenerator[tuple[JsonObject, discord.File]]:
    """The message body and the file for it. Raises SurfaceRefused `too_large` before a byte is sent."""
    if file.size_bytes > bytes_max:
        raise _too_large(file, bytes_max)
    name = safe_name(file.name)
    with await asyncio.to_thread(tempfile.TemporaryFile) as spool:
        await _fill(spool, file, bytes_max)
        ready = discord.File(spool, filename=name)
        try:
            yield _body(name, delivery_id), ready
        finally:
            ready.close()


def safe_name(name: str) -> str:
    """A name without folders, quotes and control characters, as a multipart header needs it."""
    last = encodable(name).replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join("_" if character in '"\n\t:' else character for character in last).strip()
    stem, dot, ending = kept.rpartition(".")
    if dot and len(ending) < 16:
        return f"{clip(stem, FILE_NAME_MAX - len(ending) - 1) or 'file'}.{ending}"
    return clip(kept, FILE_NAME_MAX) or "file"


def _body(name: str, delivery_id: str) -> JsonObject:
    description = f"{clip(name, 200)}, made by the agent, {delivery_marker.tag(delivery_id)}"
    return {
        "attachments": [{"id": 0, "filename": name, "description": description}],
        "allowed_mentions": {"parse": []},
    }


async def _fill(spool: IO[bytes], file: OutgoingFile, bytes_max: int) -> None:
    size = 0
    async for piece in file.pieces:
        size += len(piece)
        if size > bytes_max:
            raise _too_large(file, bytes_max)
        await asyncio.to_thread(spool.write, piece)
    spool.seek(0)


def _too_large(file: OutgoingFile, bytes_max: int) -> SurfaceRefused:
    return SurfaceRefused(
        f"{file.name} is larger than the {bytes_max // (1024 * 1024)} MiB that Discord takes here.",
        code=TOO_LARGE,
    )
