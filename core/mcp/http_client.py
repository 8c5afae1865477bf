"""The HTTP client for MCP servers: bounds responses, and keeps the reasons of refusals."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import cast

import httpx2
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorData,
    JSONRPCError,
    jsonrpc_message_adapter,
)

from core.context.untrusted_text import clean_line
from core.mcp.oauth import Authorize, build_oauth
from core.mcp.settings import McpServerConfig

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
SEND_SECONDS = 30.0


def http_client_factory(
    config: McpServerConfig, authorize: Authorize | None = None
) -> Callable[..., httpx2.AsyncClient]:
    def make(**_options: object) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={**config.headers, "accept-encoding": "identity"},
            auth=build_oauth(config, authorize),
            # no read timeout: a server may be quiet for hours, and each call has its own timeout
            timeout=httpx2.Timeout(SEND_SECONDS, connect=config.connect_timeout_seconds, read=None),
            transport=BoundedTransport(httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=64)), config.url),
        )

    return make


SESSION_FORGOTTEN = -31_001
HTTP_REFUSED = -31_002
"""Codes of errors that BoundedTransport creates. SESSION_FORGOTTEN: the server no longer knows the session.
HTTP_REFUSED: the server refused the request with an HTTP status, which is the data of the error. The error's message is
a sentence."""

REFUSAL_BYTES_MAX = 64 * 1024
_MEANT = frozenset(
    (
        HEADER_MISMATCH,
        INVALID_PARAMS,
        METHOD_NOT_FOUND,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        PARSE_ERROR,
        UNSUPPORTED_PROTOCOL_VERSION,
    )
)
"""Codes of errors about the request itself, which do not mean that the session is invalid."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Refuses compressed responses, which may unpack to any size, and responses that are larger than a message may be.

    The SDK bounds the events of a stream that it requested, but reads every other response in one piece. It also drops
    the reason of a refusal, so a refusal of a message to `url` becomes an error response that names the reason."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, url: str) -> None:
        self._inner = inner
        self._url = httpx2.URL(url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("the answer is compressed, which was not asked for")
        is_asked = "text/event-stream" in request.headers.get("accept", "").lower()
        kind = response.headers.get("content-type", "").lower()
        if not (is_asked and response.is_success and kind.startswith("text/event-stream")):
            body = cast(httpx2.AsyncByteStream, response.stream)
            response.stream = _BoundedBody(body)
        if response.is_error and request.method == "POST" and request.url == self._url:
            # the body of a refusal becomes an error: the server's own error if that is about the request
            error: ErrorData | None = None
            try:
                refusal = await response.aread()
                with suppress(ValueError, RecursionError):
                    message = jsonrpc_message_adapter.validate_json(refusal[:REFUSAL_BYTES_MAX], by_name=False)
                    error = message.error if isinstance(message, JSONRPCError) else None
            except httpx2.HTTPError:
                pass
            finally:
                await response.aclose()
            status = response.status_code
            has_session = "mcp-session-id" in request.headers
            if has_session and status in (400, 404) and (error is None or error.code not in _MEANT):
                said = clean_line(error.message, 300) if error else f"status {status}"
                error = ErrorData(
                    code=SESSION_FORGOTTEN, message=f"it was started anew and has forgotten the session ({said})"
                )
            elif error is None or status in (401, 403, 429):
                error = ErrorData(code=HTTP_REFUSED, message=_refusal(response), data=status)
            body = JSONRPCError(jsonrpc="2.0", id=None, error=error)
            kept = {"www-authenticate", "retry-after", "mcp-session-id"}
            return httpx2.Response(
                status,
                headers={
                    **{name: text for name, text in response.headers.items() if name.lower() in kept},
                    "content-type": "application/json",
                },
                content=body.model_dump_json(by_alias=True).encode(),
                request=request,
            )
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _refusal(response: httpx2.Response) -> str:
    """Returns a sentence with the status, when to try again, and the address that a 401 response names for
    authorization."""
    said = f"it answered with the status {response.status_code}"
    wait = clean_line(response.headers.get("retry-after", ""), 40)
    if wait:
        said += f" and asks to wait {f'{wait} s' if wait.isdecimal() else f'until {wait}'}"
    if response.status_code == 401:
        challenge = response.headers.get("www-authenticate", "")
        found = re.search(r'resource_metadata="([^"]{1,300})"', challenge)
        said += f", which asks for authorization ({clean_line(found[1], 300)})" if found else ""
    return said


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for piece in self._inner:
            taken += len(piece)
            if taken > MESSAGE_BYTES_MAX:
                raise httpx2.StreamError(f"the answer is larger than {MESSAGE_BYTES_MAX} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
