"""Fetches a public URL for a model, within limits on size, time and redirects."""

import asyncio
import logging
import socket
from dataclasses import dataclass
from importlib import metadata

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientProxyConnectionError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    hdrs,
)
from yarl import URL

from core.domain.errors import ToolError
from core.failpoints import Failpoint
from core.web_access.guard import AddressGuard, RefusedAddress, parse_web_url

log = logging.getLogger(__name__)

_DOWNLOAD = Failpoint("outside.fetch")
_PIECE_BYTES = 1 << 16
_MOVED = frozenset((301, 302, 303, 307, 308))
PROXY_FAILED = "The proxy of this installation does not work. Only the operator can correct that: tell the user so."
USER_AGENT = f"Threadhand/{metadata.version('threadhand')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadLimits:
    """Limits of one download. `seconds_max` covers the whole download, including redirects."""

    bytes_max: int = 10_000_000
    seconds_max: float = 30
    redirects_max: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A fetched document. `url` is its address after redirects; `content_type` and `charset` come from the server."""

    url: str
    content: bytes
    content_type: str
    charset: str = ""


async def download(
    address: str, guard: AddressGuard, *, accept: str = "*/*", limits: DownloadLimits | None = None
) -> Download:
    """Fetches a URL. Raises ToolError with a message for the model if it fails."""
    limits = limits or DownloadLimits()
    url = parse_web_url(address)
    try:
        with _DOWNLOAD:
            # a session that shares no cookies or connections with other fetches
            session = ClientSession(
                connector=guard.connector(),
                cookie_jar=DummyCookieJar(),
                headers={hdrs.USER_AGENT: USER_AGENT, hdrs.ACCEPT_LANGUAGE: "en, *;q=0.5"},
                timeout=ClientTimeout(total=limits.seconds_max),
                trust_env=False,
            )
            async with asyncio.timeout(limits.seconds_max), session:
                for _ in range(limits.redirects_max + 1):
                    try:
                        found = await _asked(session, guard, url, accept, limits)
                        if isinstance(found, Download):
                            return found
                        url = parse_web_url(str(url.join(URL(found))))
                    except TimeoutError:
                        raise  # the overall timeout; `except OSError` below would catch it
                    except (ClientError, OSError, ValueError) as error:
                        raise ToolError(_why(url, error)) from error
                raise ToolError(f"{url} leads on more than {limits.redirects_max} times. Use another address.")
    except TimeoutError as error:
        raise ToolError(
            f"{url} did not answer within {limits.seconds_max:g} s. Try it later, or use another source."
        ) from error


async def _asked(
    session: ClientSession, guard: AddressGuard, url: URL, accept: str, limits: DownloadLimits
) -> Download | str:
    """Sends one request. Returns the content, or the target of a redirect."""
    target_url, options = await guard.request_options(url)
    headers = {hdrs.ACCEPT: accept, **options.pop("headers", {})}
    async with session.get(target_url, headers=headers, allow_redirects=False, **options) as response:
        target = response.headers.get(hdrs.LOCATION)
        if response.status in _MOVED and target is not None:
            return target
        _check(response, url)
        too_large = ToolError(
            f"{url} is larger than {limits.bytes_max // 1_000_000} MB and was not loaded. Load it with a command in the"
            " sandbox, or use another source."
        )
        if (response.content_length or 0) > limits.bytes_max:
            raise too_large
        content = bytearray()
        async for piece in response.content.iter_chunked(_PIECE_BYTES):
            content += piece
            if len(content) > limits.bytes_max:
                raise too_large
        kind, charset = response.content_type.lower(), response.charset or ""
        return Download(url=str(url), content=bytes(content), content_type=kind, charset=charset)


def _check(response: ClientResponse, url: URL) -> None:
    status = response.status
    if status == 200:
        return
    if status == 407:
        log.warning("the proxy of THREADHAND_WEB_PROXY does not accept its user and password")
        raise ToolError(PROXY_FAILED)
    if status in (401, 403, 451):
        raise ToolError(f"{url} answers {status}: it does not let programs in. Use another source, or the browser.")
    if status in (404, 410):
        raise ToolError(f"{url} answers {status}: there is no such page. Search for another one.")
    if status == 429 or status >= 500:
        raise ToolError(f"{url} answers {status}. Try it later, or use another source.")
    raise ToolError(f"{url} answers {status}, without content. Use another source.")


def _why(url: URL, error: Exception) -> str:
    match error:
        case ClientConnectorError(os_error=RefusedAddress()) | RefusedAddress():
            log.warning("a download was refused: %s is no address of the public internet", url.host)
            return f"{url} is not on the public internet, and nothing else is opened. Use a public address."
        case ClientProxyConnectionError() | ClientHttpProxyError():
            log.warning("the proxy of THREADHAND_WEB_PROXY does not work: %s", error)
            return PROXY_FAILED
        case ClientConnectorDNSError() | socket.gaierror():
            return f"The host {url.host} is not known. Check how it is written."
        case ClientConnectorCertificateError():
            return f"{url} has no valid certificate, so it was not opened. Use another source."
        case InvalidURL() | ValueError():
            return f"{url} is no valid URL, or leads to one. Give another one."
        case _:
            return f"{url} could not be loaded ({type(error).__name__}). Try it later, or use another source."
