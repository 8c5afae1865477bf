"""Downloads attachments, only from Discord's file hosts and without a token, and uploads files."""

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath

import aiohttp
import discord
from pydantic import JsonValue
from yarl import URL

from bots.delivery.markdown import truncate
from bots.discord.limits import FILE_NAME_MAX, remove_unsendable
from bots.discord.rest import delivery_marker
from bots.discord.rest.client import TOO_LARGE, RestClient, get_objects, get_text
from core.domain.errors import RunError, SurfaceError, SurfaceRefused
from core.domain.json import JsonObject
from core.domain.threads import IncomingFile
from core.failpoints import Failpoint
from core.ports import OutgoingFile

log = logging.getLogger(__name__)

DOWNLOAD = Failpoint("discord.download")
HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
CHUNK_BYTES = 64 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=30)


@dataclass(frozen=True, slots=True)
class AttachmentRef:
    """An attachment's link, and the message from which to fetch a new link after it expires."""

    channel: str
    message: str
    attachment: str
    url: str


def build_file_ref(*, channel_id: str, message_id: str, attachment_id: str, url: str) -> str:
    """Returns the reference to an attachment. The message's id is "0" for the files of a command."""
    names = {"channel": channel_id, "message": message_id, "attachment": attachment_id}
    return json.dumps({**names, "url": url})


class DiscordFiles:
    """FileSource for Discord. With `api_url`, downloads from that server are allowed too."""

    def __init__(self, rest: RestClient, *, api_url: str | None = None) -> None:
        self._rest = rest
        self._local = URL(api_url).origin() if api_url else None
        self._session: aiohttp.ClientSession | None = None

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        """Opens a file (see FileSource). If its link has expired, fetches a new link once."""
        reference = _reference(file)
        if file.size_bytes is not None and file.size_bytes > bytes_max:
            raise download_too_large(file, bytes_max)
        try:
            with DOWNLOAD:
                response = await self._get(file, reference.url)
                if response.status in (401, 403, 404, 410):
                    response.release()
                    response = await self._get(file, await self._fresh(file, reference))
            async with response:
                if response.status != 200:
                    raise _gone(file, f"status {response.status}")
                size = 0
                async for piece in response.content.iter_chunked(CHUNK_BYTES):
                    size += len(piece)
                    if size > bytes_max:
                        raise download_too_large(file, bytes_max)
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RunError(f"I could not download {file.name} from Discord.", detail=type(error).__name__) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, file: IncomingFile, address: str) -> aiohttp.ClientResponse:
        url = URL(address)
        is_local = self._local is not None and url.is_absolute() and url.origin() == self._local
        is_discord = url.scheme == "https" and url.host in HOSTS and url.port == 443
        if not (is_local or is_discord):
            raise RunError(f"I cannot open {file.name}: it is not stored on Discord.", detail=url.host or "")
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT)
        return await self._session.get(url, allow_redirects=False)

    async def _fresh(self, file: IncomingFile, reference: AttachmentRef) -> str:
        if reference.message in ("", "0"):
            raise _gone(file, "the link has expired")
        try:
            message = await self._rest.call(
                "GET",
                "/channels/{channel_id}/messages/{message_id}",
                channel_id=reference.channel,
                message_id=reference.message,
            )
        except SurfaceError as error:
            raise _gone(file, str(error)) from error
        holders = [message, *forwarded_messages(message)] if isinstance(message, dict) else []
        for attachment in (one for holder in holders for one in get_objects(holder.get("attachments"))):
            if get_text(attachment, "id") == reference.attachment:
                return get_text(attachment, "url")
        raise _gone(file, "no longer attached")


def _reference(file: IncomingFile) -> AttachmentRef:
    try:
        found: object = json.loads(file.file_ref)
    except ValueError as error:
        raise _gone(file, "unreadable reference") from error
    if not isinstance(found, dict):
        raise _gone(file, "unreadable reference")
    return AttachmentRef(
        *(get_text(found, key) for key in ("channel", "message", "attachment", "url"))  # pyright: ignore[reportUnknownArgumentType] - JSON
    )


def forwarded_messages(message: JsonObject) -> list[JsonObject]:
    found = (one.get("message") for one in get_objects(message.get("message_snapshots")))
    return [one for one in found if isinstance(one, dict)]


def display_name_of_attachment(file_name: str, title: str) -> str:
    """Returns the name that users see. Discord replaces some characters in file names and keeps the original, without
    its extension, in the title."""
    ending = PurePosixPath(file_name).suffix
    return f"{title.removesuffix(ending)}{ending}" if title else file_name


def _gone(file: IncomingFile, detail: str) -> RunError:
    return RunError(f"{file.name} is no longer available on Discord. Ask for it to be sent again.", detail=detail)


def download_too_large(file: IncomingFile, bytes_max: int) -> RunError:
    """Returns the error for a download larger than `bytes_max`."""
    return RunError(f"{file.name} is larger than {bytes_max // (1024 * 1024)} MiB.")


@asynccontextmanager
async def prepare_upload(
    files: Sequence[OutgoingFile], *, bytes_max: int
) -> AsyncGenerator[tuple[JsonObject, list[discord.File]]]:
    """Context manager: yields the fields of the message body that describe the files, and the files themselves.

    Raises SurfaceRefused with the code `too_large` before anything is sent if a file, or all files together, exceed the
    limit. Spools the files to disk, so that discord.py can repeat the upload."""
    if sum(file.size_bytes for file in files) > bytes_max:
        raise _upload_too_large(files[0], bytes_max)
    async with AsyncExitStack() as stack:
        ready: list[discord.File] = []
        for file in files:
            spool = stack.enter_context(await asyncio.to_thread(tempfile.TemporaryFile))
            size = 0
            async for piece in file.pieces:
                size += len(piece)
                if size > bytes_max:
                    raise _upload_too_large(file, bytes_max)
                await asyncio.to_thread(spool.write, piece)
            spool.seek(0)
            ready.append(discord.File(spool, filename=safe_file_name(file.name)))
            stack.callback(ready[-1].close)
        attachments: list[JsonValue] = []
        for index, file in enumerate(files):
            name = safe_file_name(file.name)
            marker = delivery_marker.readable_marker(file.delivery_id)
            description = f"{truncate(name, 200)}, made by the agent, {marker}"
            attachments.append({"id": index, "filename": name, "description": description})
        yield {"attachments": attachments, "allowed_mentions": {"parse": []}}, ready


def safe_file_name(name: str) -> str:
    """Returns the name without folders, quotes and control characters, as multipart headers require."""
    last = remove_unsendable(name).replace("\\", "/").rsplit("/", 1)[-1]
    kept = "".join("_" if character in '"\n\t:' else character for character in last).strip()
    stem, dot, ending = kept.rpartition(".")
    if dot and len(ending) < 16:
        return f"{truncate(stem, FILE_NAME_MAX - len(ending) - 1) or 'file'}.{ending}"
    return truncate(kept, FILE_NAME_MAX) or "file"


def _upload_too_large(file: OutgoingFile, bytes_max: int) -> SurfaceRefused:
    return SurfaceRefused(
        f"{file.name} is larger than the {bytes_max // (1024 * 1024)} MiB that Discord accepts here.", code=TOO_LARGE
    )
