"""Opens what people attached in Discord: from Discord's own file hosts only, without any token."""

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
from yarl import URL

from bots.discord.rest.client import Rest, objects, text_of
from core.domain.errors import AgentError, SurfaceError
from core.domain.threads import IncomingFile
from core.failpoints import Failpoint

log = logging.getLogger(__name__)

DOWNLOAD = Failpoint("discord.download")
HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
PIECE_BYTES = 64 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=15, sock_read=30)


@dataclass(frozen=True, slots=True)
class Reference:
    """An attachment: its link, and where to find a fresh one."""

    channel: str
    message: str
    attachment: str
    url: str


class DiscordFiles:
    """FileSource for Discord. `api_url` adds the host of a local server to the allowed ones."""

    def __init__(self, rest: Rest, *, api_url: str | None = None) -> None:
        self._rest = rest
        self._local = URL(api_url).origin() if api_url else None
        self._session: aiohttp.ClientSession | None = None

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        """See FileSource. A link that has expired is looked up again once."""
        reference = _reference(file)
        if file.size_bytes is not None and file.size_bytes > bytes_max:
            raise too_large(file, bytes_max)
        try:
            with DOWNLOAD:
                response = await self._get(file, reference.url)
                if response.status in (401, 403, 404, 410):
                    response.release()
                    response = await self._get(file, await self._fresh(file, reference))
            async with response:
                if response.status != 200:
                    raise _gone(file, f"status {response.status}")
                async for piece in _capped(response, file, bytes_max):
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AgentError(
                f"I could not download {file.name} from Discord.", detail=type(error).__name__
            ) from error

    async def close(self) -> None:
        """Ends the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, file: IncomingFile, address: str) -> aiohttp.ClientResponse:
        url = URL(address)
        if not self._is_allowed(url):
            raise AgentError(
                f"I may not open {file.name}: it is not stored at Discord.", detail=url.host or ""
            )
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=TIMEOUT)
        return await self._session.get(url, allow_redirects=False)

    def _is_allowed(self, url: URL) -> bool:
        if self._local is not None and url.is_absolute() and url.origin() == self._local:
            return True
        return url.scheme == "https" and url.host in HOSTS and url.port == 443

    async def _fresh(self, file: IncomingFile, reference: Reference) -> str:
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
        attachments = message.get("attachments") if isinstance(message, dict) else None
        for attachment in objects(attachments):
            if text_of(attachment, "id") == reference.attachment:
                return text_of(attachment, "url")
        raise _gone(file, "no longer attached")


async def _capped(
    response: aiohttp.ClientResponse, file: IncomingFile, bytes_max: int
) -> AsyncIterator[bytes]:
    size = 0
    async for piece in response.content.iter_chunked(PIECE_BYTES):
        size += len(piece)
        if size > bytes_max:
            raise too_large(file, bytes_max)
        yield piece


def _reference(file: IncomingFile) -> Reference:
    try:
        found: object = json.loads(file.file_ref)
    except ValueError as error:
        raise _gone(file, "unreadable reference") from error
    if not isinstance(found, dict):
        raise _gone(file, "unreadable reference")
    return Reference(
        *(text_of(found, key) for key in ("channel", "message", "attachment", "url"))  # pyright: ignore[reportUnknownArgumentType] - JSON
    )


def _gone(file: IncomingFile, detail: str) -> AgentError:
    return AgentError(f"{file.name} is no longer to be had at Discord.", detail=detail)


def too_large(file: IncomingFile, bytes_max: int) -> AgentError:
    """The sentence for a file over the limit."""
    return AgentError(f"{file.name} is larger than {bytes_max // (1024 * 1024)} MiB.")
