"""The ways to reach an MCP server, with a watch on what comes in."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import anyio
import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCResponse

from core.mcp.offers import SCHEMA_KEY
from core.mcp.settings import McpServerConfig
from core.mcp.stdio import MESSAGE_BYTES_MAX, MessageTooLarge, stdio_transport

TOOLS_PER_PAGE_MAX = 1_000
SEND_SECONDS = 30.0
_PASSED = frozenset(("notifications/cancelled", "notifications/subscriptions/acknowledged"))
"""The notifications that the SDK needs; progress, logs and floods of others stay outside."""

for _name in ("mcp", "client", "httpx2", "httpcore2"):
    # they write addresses and whole messages, with keys in them; what matters is reported by the caller
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(slots=True)
class Watch:
    """What is known of a connection from its incoming messages. `on_end` is called once it can bring no more."""

    on_tools_changed: Callable[[], None]
    on_end: Callable[[], None]
    has_ended: bool = False
    why: str = "the connection ended before its answer"

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.on_end()


@asynccontextmanager
async def watched_transport(
    config: McpServerConfig, host_environment: Mapping[str, str], watch: Watch
) -> AsyncGenerator[TransportStreams, None]:
    """The streams to the server. Raises OSError or the SDK's and HTTP's own errors where it cannot be reached."""
    async with _transport(config, host_environment) as (incoming, outgoing):
        yield Incoming(incoming, watch), outgoing


@asynccontextmanager
async def _transport(
    config: McpServerConfig, host_environment: Mapping[str, str]
) -> AsyncGenerator[TransportStreams, None]:
    match config.transport:
        case "stdio":
            async with stdio_transport(config, host_environment) as streams:
                yield streams
        case "sse":
            client = _client_factory(config)
            async with sse_client(config.url, httpx_client_factory=client) as streams:
                yield streams
        case "http":
            async with (
                _client_factory(config)() as client,
                streamable_http_client(
                    config.url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX
                ) as streams,
            ):
                yield streams


def _client_factory(config: McpServerConfig) -> Callable[..., httpx2.AsyncClient]:
    def make(**_options: object) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={**config.headers, "accept-encoding": "identity"},
            # no limit on reading: a server may be quiet for hours; each call has its own limit
            timeout=httpx2.Timeout(SEND_SECONDS, connect=config.connect_timeout_seconds, read=None),
            transport=Bounded(httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=64))),
        )

    return make


class Bounded(httpx2.AsyncBaseTransport):
    """Refuses answers that are compressed (they may unpack to anything) or larger than a message may be.

    The SDK bounds the events of a stream that it asked for; any other answer it reads whole, whatever it calls itself.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

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
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


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


@dataclass(slots=True)
class Incoming:
    """A read stream of the SDK that tells the watch what passes, and mends what would upset the SDK as a whole."""

    inner: ReadStream[SessionMessage | Exception]
    watch: Watch

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                item = await self.inner.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                self.watch.end()
                raise
            if isinstance(item, Exception):
                self.watch.why = str(item) if isinstance(item, MessageTooLarge) else self.watch.why
                continue
            if self._is_wanted(item):
                return item

    def _is_wanted(self, item: SessionMessage) -> bool:
        message = item.message
        if isinstance(message, JSONRPCNotification):
            if message.method == "notifications/tools/list_changed":
                self.watch.on_tools_changed()
            return message.method in _PASSED
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            message.result["tools"] = _fit_tools(message.result["tools"])
        return True

    @property
    def last_context(self) -> object:
        return getattr(self.inner, "last_context", None)

    def __aiter__(self) -> "Incoming":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> "Incoming":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _fit_tools(listed: list[Any]) -> list[dict[str, Any]]:
    """The tools of one page that have a name and a schema: one that has not would lose all the others.

    Their schemas for outputs go: a hostile one could keep the checker busy for ever.
    """
    found: list[dict[str, Any]] = []
    for one in listed[:TOOLS_PER_PAGE_MAX]:
        tool = cast(dict[str, Any], one) if isinstance(one, dict) else {}
        schema, hints, description = (
            tool.get(key) for key in ("inputSchema", "annotations", "description")
        )
        if not isinstance(tool.get("name"), str) or not isinstance(schema, dict):
            continue
        is_hinted = (
            isinstance(hints, dict) and cast(dict[str, Any], hints).get("readOnlyHint") is True
        )
        found.append(
            {
                "name": tool["name"],
                "description": description if isinstance(description, str) else "",
                "inputSchema": _fit_schema(cast(dict[str, Any], schema)),
                "annotations": {"readOnlyHint": is_hinted},
                "_meta": {SCHEMA_KEY: schema},
            }
        )
    return found


def _fit_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in the shape that the SDK asks for; what the server wrote is judged by us."""
    properties, required = schema.get("properties"), schema.get("required")
    fit = {key: value for key, value in schema.items() if key not in ("properties", "required")}
    if isinstance(properties, dict):
        items = cast(dict[str, Any], properties).items()
        fit["properties"] = {name: one for name, one in items if isinstance(one, dict)}
    if isinstance(required, list) and all(
        isinstance(one, str) for one in cast(list[Any], required)
    ):
        fit["required"] = required
    return {**fit, "type": "object"}
