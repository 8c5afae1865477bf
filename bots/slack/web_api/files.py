"""Files that people attached, on their way from Slack: streamed, capped, and the token shown to Slack alone."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from bots.slack.events.message_content import files
from bots.slack.events.payload import child, text
from bots.slack.web_api.client import CALL_SECONDS_MAX, SlackClient
from bots.slack.web_api.hosts import is_slacks
from core.domain.errors import AgentError, SurfaceError, SurfaceRefused
from core.domain.threads import IncomingFile
from core.failpoints import Failpoint

DOWNLOAD = Failpoint("slack.download")
PIECE_BYTES = 64 * 1024
REDIRECTS_MAX = 3
LOOKUP_SECONDS_MAX = 0.8

log = logging.getLogger(__name__)


async def introduced(client: SlackClient, file: IncomingFile) -> IncomingFile:
    """The file with its name, type and size. A message of a shared channel tells its id alone, so they are asked for;
    where Slack does not tell in time, it stays as it is."""
    file_id, _, address = file.file_ref.partition(" ")
    if address:
        return file
    try:
        async with asyncio.timeout(LOOKUP_SECONDS_MAX):
            answer = await client.read("files.info", {"file": file_id})
    except (SurfaceError, TimeoutError) as error:
        log.info("slack does not tell what a file is: %s", error)
        return file
    found = files({"files": [child(answer, "file")]})
    return found[0] if found else file


class SlackFiles:
    """FileSource of one workspace."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        if file.size_bytes is not None and file.size_bytes > bytes_max:
            raise _too_large(file, bytes_max)
        url = await self._address(file)
        with DOWNLOAD:
            try:
                async with self._answer(url, file) as answer:
                    _check(answer, file)
                    received = 0
                    async for piece in answer.content.iter_chunked(PIECE_BYTES):
                        received += len(piece)
                        if received > bytes_max:
                            raise _too_large(file, bytes_max)
                        yield piece
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise _unavailable(
                    file, f"the download broke off ({type(error).__name__})"
                ) from error

    async def _address(self, file: IncomingFile) -> URL:
        """Where the bytes are. A message of a shared channel names the file alone: its address is asked for."""
        file_id, _, address = file.file_ref.partition(" ")
        if not address:
            try:
                answer = await self._client.read("files.info", {"file": file_id})
            except SurfaceRefused as error:
                raise _unavailable(file, f"files.info: {error.code}") from error
            except SurfaceError as error:
                raise _unavailable(file, f"files.info: {error}") from error
            found = child(answer, "file")
            address = text(found, "url_private_download") or text(found, "url_private")
        url = URL(address)
        if not is_slacks(url, self._client.api_url):
            raise _unavailable(file, f"foreign host {url.host}")
        return url

    @asynccontextmanager
    async def _answer(self, url: URL, file: IncomingFile) -> AsyncGenerator[aiohttp.ClientResponse]:
        """The final answer. The token goes with the first request alone; a redirect has to stay with Slack."""
        headers = {"Authorization": f"Bearer {self._client.bot_token}"}
        for _ in range(REDIRECTS_MAX + 1):
            async with self._client.session.get(
                url,
                headers=headers,
                proxy=self._client.proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    sock_connect=CALL_SECONDS_MAX, sock_read=CALL_SECONDS_MAX
                ),
            ) as answer:
                if answer.status not in {301, 302, 303, 307, 308}:
                    yield answer
                    return
                url = url.join(URL(answer.headers.get("Location", "")))
            headers = {}
            if not is_slacks(url, self._client.api_url):
                raise _unavailable(file, f"redirected to {url.host}")
        raise _unavailable(file, "redirected too often")


def _check(answer: aiohttp.ClientResponse, file: IncomingFile) -> None:
    if answer.status != 200:
        raise _unavailable(file, f"status {answer.status}")
    if answer.content_type != "text/html":
        return
    # With a wrong token, or without the scope files:read, Slack answers 200 and a login page.
    is_page = not file.mime_type.startswith("text/html")
    is_other_size = file.size_bytes is not None and answer.content_length != file.size_bytes
    if is_page or is_other_size:
        raise _unavailable(file, "a login page came instead: is the scope files:read granted?")


def _unavailable(file: IncomingFile, detail: str) -> AgentError:
    log.warning("a slack file cannot be read: %s", detail)
    return AgentError(f"The file {file.name!r} cannot be read from Slack.", detail=detail)


def _too_large(file: IncomingFile, bytes_max: int) -> AgentError:
    megabytes = bytes_max / 1_000_000
    return AgentError(f"The file {file.name!r} is larger than the {megabytes:g} MB that I take.")
