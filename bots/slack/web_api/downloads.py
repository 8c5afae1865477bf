"""Downloads files that users attached, and signs references to them."""

import hashlib
import hmac
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import aiohttp
from yarl import URL

from bots.slack.events.message_content import parse_files
from bots.slack.events.payload_fields import get_object, get_text
from bots.slack.web_api.client import CALL_SECONDS_MAX, SlackClient
from core.domain.errors import RunError, SurfaceError, SurfaceRefused
from core.domain.threads import IncomingFile
from core.failpoints import Failpoint
from core.web_access.guard import is_loopback

_SIGNED_REF = re.compile(r"(?P<team>T[A-Z0-9]{1,40})(\.(?P<seal>[0-9a-f]{64}))?/(?P<ref>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """A file with its original reference. If `is_sealed`, a valid signature proves that the workspace received the
    file."""

    team_id: str
    is_sealed: bool
    file: IncomingFile


class FileRefSigner:
    """Adds the workspace and a signature to file references, if the app serves several workspaces.

    An organisation's token can read the files of all its workspaces, so only the signature proves that a workspace
    received the file. The first of `keys` signs; all are accepted."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)

    def sign(self, team_id: str, file: IncomingFile) -> IncomingFile:
        seal = _sign(self._keys[0], team_id, file.file_ref)
        return replace(file, file_ref=f"{team_id}.{seal}/{file.file_ref}")

    def verify(self, file: IncomingFile) -> WorkspaceFile | None:
        """Checks the signature in the file's reference. Returns the file and the workspace that the reference names.
        Returns None if the signature is wrong or the reference has another form. Old references without a signature are
        accepted."""
        found = _SIGNED_REF.fullmatch(file.file_ref)
        if found is None:
            return None
        team_id, ref, seal = found["team"], found["ref"], found["seal"] or ""
        is_sealed = any(hmac.compare_digest(_sign(key, team_id, ref), seal) for key in self._keys)
        if seal and not is_sealed:
            return None
        return WorkspaceFile(team_id=team_id, is_sealed=is_sealed, file=replace(file, file_ref=ref))


def _sign(key: str, team_id: str, ref: str) -> str:
    return hmac.new(key.encode(), f"slack-file:{team_id}/{ref}".encode(), hashlib.sha256).hexdigest()


_SLACK_DOMAINS = ("slack.com", "slack-files.com")


def is_slack_url(url: URL, api_url: URL) -> bool:
    """Whether the bot's token may be sent to the URL: it is on one of Slack's domains over TLS, or on the configured
    API server.

    A simulator on this machine may use any of its names (localhost, 127.0.0.1)."""
    if not url.host or url.user or url.password:
        return False
    if url.origin() == api_url.origin():
        return True
    if is_loopback(url) and is_loopback(api_url):
        return (url.scheme, url.port) == (api_url.scheme, api_url.port)
    is_domain = any(url.host == name or url.host.endswith(f".{name}") for name in _SLACK_DOMAINS)
    return is_domain and url.scheme == "https" and url.port == 443


DOWNLOAD = Failpoint("slack.download")
CHUNK_BYTES = 64 * 1024
REDIRECTS_MAX = 3
LOGIN_PAGE = "a login page came instead: is the scope files:read granted?"
LOOKUP_SECONDS_MAX = 0.8

log = logging.getLogger(__name__)


async def fetch_file_metadata(client: SlackClient, file: IncomingFile) -> IncomingFile:
    """Fetches the file's name, type and size if they are missing, as in messages of Slack Connect channels.

    Returns the file unchanged if it already has them, or if Slack does not respond in time."""
    file_id, _, address = file.file_ref.partition(" ")
    if address:
        return file
    try:
        answer = await client.look_up("files.info", {"file": file_id}, seconds_max=LOOKUP_SECONDS_MAX)
    except SurfaceError as error:
        log.info("slack: a file's metadata cannot be read: %s", error)
        return file
    found = parse_files({"files": [get_object(answer, "file")]})
    return found[0] if found else file


class SlackFiles:
    """Implements FileSource. `client_for_file` returns the client of the workspace that received the file, and the file
    with Slack's own reference in place of our signed one. It raises RunError if no workspace may read the file."""

    def __init__(self, client_for_file: Callable[[IncomingFile], Awaitable[tuple[SlackClient, IncomingFile]]]) -> None:
        self._client_for_file = client_for_file

    async def open(self, file: IncomingFile, *, bytes_max: int) -> AsyncIterator[bytes]:
        client, file = await self._client_for_file(file)
        if file.size_bytes is not None and file.size_bytes > bytes_max:
            raise _too_large(file, bytes_max)
        url = await _address(client, file)
        with DOWNLOAD:
            try:
                async with _answer(client, url, file) as answer:
                    if answer.status != 200:
                        raise _unavailable(file, f"status {answer.status}")
                    # With a wrong token, or without the scope files:read, Slack returns a login page with status 200.
                    # An HTML file has another size than that page, but the size may be known only at the end of the
                    # download.
                    received, is_page = 0, answer.content_type == "text/html"
                    if is_page and not file.mime_type.startswith("text/html"):
                        raise _unavailable(file, LOGIN_PAGE)
                    async for piece in answer.content.iter_chunked(CHUNK_BYTES):
                        received += len(piece)
                        if received > bytes_max:
                            raise _too_large(file, bytes_max)
                        yield piece
                    if is_page and file.size_bytes not in (None, received):
                        raise _unavailable(file, LOGIN_PAGE)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise _unavailable(file, f"the download broke off ({type(error).__name__})") from error


async def _address(client: SlackClient, file: IncomingFile) -> URL:
    """Returns the file's download URL. Fetches it if it is missing, as in messages of Slack Connect channels."""
    file_id, _, address = file.file_ref.partition(" ")
    if not address:
        try:
            answer = await client.read("files.info", {"file": file_id})
        except SurfaceRefused as error:
            raise _unavailable(file, f"files.info: {error.code}") from error
        except SurfaceError as error:
            raise _unavailable(file, f"files.info: {error}") from error
        found = get_object(answer, "file")
        address = get_text(found, "url_private_download") or get_text(found, "url_private")
    url = URL(address)
    if not is_slack_url(url, client.api_url):
        raise _unavailable(file, f"foreign host {url.host}")
    return url


@asynccontextmanager
async def _answer(client: SlackClient, url: URL, file: IncomingFile) -> AsyncGenerator[aiohttp.ClientResponse]:
    """Yields the final response. Redirects must stay on Slack's hosts, and are followed without the token."""
    headers = {"Authorization": f"Bearer {client.bot_token}"}
    for _ in range(REDIRECTS_MAX + 1):
        async with client.session.get(
            url,
            headers=headers,
            proxy=client.proxy,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(sock_connect=CALL_SECONDS_MAX, sock_read=CALL_SECONDS_MAX),
        ) as answer:
            if answer.status not in {301, 302, 303, 307, 308}:
                yield answer
                return
            url = url.join(URL(answer.headers.get("Location", "")))
        headers = {}
        if not is_slack_url(url, client.api_url):
            raise _unavailable(file, f"redirected to {url.host}")
    raise _unavailable(file, "redirected too often")


def _unavailable(file: IncomingFile, detail: str) -> RunError:
    log.warning("a slack file cannot be read: %s", detail)
    return RunError(f"The file {file.name!r} cannot be read from Slack.", detail=detail)


def _too_large(file: IncomingFile, bytes_max: int) -> RunError:
    megabytes = bytes_max / 1_000_000
    return RunError(f"The file {file.name!r} is larger than the {megabytes:g} MB that I accept.")
