"""Transports to MCP servers: a child process over stdio, SSE and streamable HTTP, with bounded and filtered input."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import (
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from core.context.untrusted_text import clean_json, clean_line
from core.domain.json import json_fields
from core.mcp.http_client import MESSAGE_BYTES_MAX, http_client_factory
from core.mcp.oauth import Authorize
from core.mcp.result_repair import MALFORMED, repair_result
from core.mcp.settings import McpServerConfig
from core.mcp.tools import SCHEMA_KEY, TASK_KEY
from core.tasks import spawn

log = logging.getLogger(__name__)

LOG_LINES_MAX = 200
LOG_CHARACTERS_MAX = 500
LAST_LINE_CHARACTERS_MAX = 200
EXIT_SECONDS = 2.0
"""How long a server may take to exit after its input is closed, and again after SIGTERM."""

EXIT_EXPLAINED_SECONDS = 1.0
"""How long to wait for the exit code of a server that closed its output."""

PASSED_ON = ("PATH", "HOME", "LANG")
"""The only variables of the host's environment that a server sees."""

Inbox = MemoryObjectSendStream[SessionMessage | Exception]
Outbox = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class MessageTooLarge(Exception):
    """Raised for a message over the size limit; ends the connection. The exception's message is for the model."""

    def __init__(self) -> None:
        super().__init__(f"it sent more than {MESSAGE_BYTES_MAX >> 20} MB at once, which is refused")


@dataclass(slots=True)
class ConnectionState:
    """The state of a connection, derived from incoming messages. `on_end` is called once when the input ends.

    `why` says why the connection ended; `last_log_line` is the last line that a server over stdio wrote to stderr."""

    on_tools_changed: Callable[[], None]
    on_end: Callable[[], None]
    has_ended: bool = False
    why: str = "the connection ended before its answer"
    last_log_line: str = ""

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.on_end()


@asynccontextmanager
async def stdio_transport(
    config: McpServerConfig, host_environment: Mapping[str, str], state: ConnectionState
) -> AsyncGenerator[Streams, None]:
    """Context manager: starts the server and yields its streams; kills its whole process group at the end.

    Raises OSError if the server cannot be started."""
    passed = {name: host_environment[name] for name in PASSED_ON if name in host_environment}
    process = await asyncio.create_subprocess_exec(
        config.command,
        *config.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, **passed, **config.env},
        cwd=config.cwd,
        start_new_session=True,
        limit=MESSAGE_BYTES_MAX,
    )
    inbox, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, outbox = anyio.create_memory_object_stream[SessionMessage](0)
    noting = spawn(_note(process, config, state), name=f"mcp {config.name} log")
    tasks = (
        spawn(_read(process, inbox, config.name, noting, state), name=f"mcp {config.name} output"),
        spawn(_write(process, outbox, inbox), name=f"mcp {config.name} input"),
        noting,
    )
    try:
        yield incoming, outgoing
        # shuts the server down as the protocol prescribes: closes its input, waits, sends SIGTERM, waits
        if process.stdin is not None:
            process.stdin.close()
        ending = spawn(process.wait(), name=f"mcp {config.name} exit")
        await asyncio.wait([ending], timeout=EXIT_SECONDS)
        if not ending.done():
            _kill(process, signal.SIGTERM)
            await asyncio.wait([ending], timeout=EXIT_SECONDS)
    finally:
        _kill(process, signal.SIGKILL)
        for task in tasks:
            task.cancel()
        for stream in (inbox, incoming, outgoing, outbox):
            stream.close()
        # close the pipes: a child outside the group may have inherited them, so they may never reach their end
        transport = cast(asyncio.SubprocessTransport, getattr(process, "_transport"))  # noqa: B009 - not public
        transport.close()
        await asyncio.wait([*tasks, spawn(process.wait(), name=f"mcp {config.name} end")], timeout=EXIT_SECONDS)


def _kill(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _read(
    process: asyncio.subprocess.Process, inbox: Inbox, name: str, noting: asyncio.Task[None], state: ConnectionState
) -> None:
    assert process.stdout is not None  # noqa: S101 - made with a pipe
    with inbox:
        while True:
            try:
                raw = await process.stdout.readline()
            except ValueError:
                log.warning("the MCP server %s sent a message that is too large", name)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await inbox.send(MessageTooLarge())
                return
            except ConnectionError:
                raw = b""
            if not raw:
                with suppress(TimeoutError):
                    async with asyncio.timeout(EXIT_EXPLAINED_SECONDS):
                        code = await process.wait()
                        await asyncio.wait([noting], timeout=EXIT_EXPLAINED_SECONDS / 2)
                        said = f'; its last line on stderr: "{state.last_log_line}"' if state.last_log_line else ""
                        state.why = f"its process ended with exit code {code}{said}"
                return
            message = parse_message(raw) if raw.strip() else None
            if message is None:
                continue
            try:
                await inbox.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


def parse_message(raw: bytes) -> JSONRPCMessage | None:
    """Parses one line. A malformed response becomes an error response. Returns None for any other invalid line."""
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(raw, by_name=False)
    try:
        value = clean_json(json.loads(raw.decode("utf-8", "replace")))
        with suppress(ValueError):
            return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, RecursionError):
        return None
    asked = value.get("id") if isinstance(value, dict) else None
    if not isinstance(asked, int | str) or (isinstance(value, dict) and "method" in value):
        return None
    return JSONRPCError(jsonrpc="2.0", id=asked, error=ErrorData(code=PARSE_ERROR, message=MALFORMED))


async def _write(process: asyncio.subprocess.Process, outbox: Outbox, inbox: Inbox) -> None:
    assert process.stdin is not None  # noqa: S101 - made with a pipe
    with outbox:
        async for sent in outbox:
            text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                await process.stdin.drain()
            except OSError:
                inbox.close()
                return


async def _note(process: asyncio.subprocess.Process, config: McpServerConfig, state: ConnectionState) -> None:
    """Logs the server's stderr, up to a limit and without secrets, and keeps its last line."""
    assert process.stderr is not None  # noqa: S101 - made with a pipe
    rest = b""
    noted = 0
    while piece := await process.stderr.read(8192):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[: LOG_CHARACTERS_MAX * 8]
        said = [line for line in map(bytes.strip, lines) if line]
        if said:
            state.last_log_line = clean_line(_redacted(said[-1], config), LAST_LINE_CHARACTERS_MAX)
        for raw in said[: max(0, LOG_LINES_MAX - noted)]:
            noted += 1
            log.info("MCP server %s: %s", config.name, _redacted(raw, config))
            if noted == LOG_LINES_MAX:
                log.info("MCP server %s: it says more, which is not noted", config.name)
    if rest.strip():
        state.last_log_line = clean_line(_redacted(rest, config), LAST_LINE_CHARACTERS_MAX)
    if rest and noted < LOG_LINES_MAX:
        log.info("MCP server %s: %s", config.name, _redacted(rest, config))


def _redacted(raw: bytes, config: McpServerConfig) -> str:
    text = raw[: LOG_CHARACTERS_MAX * 8].decode("utf-8", "replace")
    for secret in sorted(config.secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return clean_line(text, LOG_CHARACTERS_MAX)


TOOLS_PER_PAGE_MAX = 1_000
_PASSED = frozenset(("notifications/cancelled", "notifications/progress", "notifications/subscriptions/acknowledged"))
"""The notifications that the SDK needs. All others are dropped."""

_LISTS_CHANGED = frozenset(("notifications/tools/list_changed", "notifications/prompts/list_changed"))
_REFUSED = frozenset(("sampling/createMessage", "roots/list"))
"""Requests of servers that are refused: a server must not use the model, and sees no folders."""

for _name in ("mcp", "client", "httpx2", "httpcore2"):
    # these loggers log addresses and whole messages, including keys; the caller reports errors that matter
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@asynccontextmanager
async def open_transport(
    config: McpServerConfig,
    host_environment: Mapping[str, str],
    watch: ConnectionState,
    authorize: Authorize | None = None,
) -> AsyncGenerator[TransportStreams, None]:
    """Context manager: yields the streams to the server. Raises OSError, or errors of the SDK or HTTP client."""
    async with AsyncExitStack() as stack:
        match config.transport:
            case "stdio":
                transport = stdio_transport(config, host_environment, watch)
            case "sse":
                transport = sse_client(config.url, httpx_client_factory=http_client_factory(config, authorize))
            case "http":
                client = await stack.enter_async_context(http_client_factory(config, authorize)())
                transport = streamable_http_client(config.url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX)
        incoming, outgoing = await stack.enter_async_context(transport)
        yield FilteredStream(incoming, outgoing, watch), outgoing


@dataclass(slots=True)
class FilteredStream:
    """A read stream that updates the connection state and repairs messages that would break the SDK."""

    inner: ReadStream[SessionMessage | Exception]
    outgoing: WriteStream[SessionMessage]
    watch: ConnectionState

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
            if isinstance(item.message, JSONRPCRequest) and item.message.method in _REFUSED:
                # answers as for an unknown method, because the SDK would answer that the request is invalid
                asked = item.message
                error = ErrorData(code=METHOD_NOT_FOUND, message=f"{asked.method} is not supported")
                await self.outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked.id, error=error)))
            elif isinstance(item.message, JSONRPCNotification):
                if item.message.method in _LISTS_CHANGED:
                    self.watch.on_tools_changed()
                if item.message.method in _PASSED:
                    return item
            else:
                if isinstance(item.message, JSONRPCResponse):
                    result = item.message.result
                    if isinstance(result.get("tools"), list):
                        result["tools"] = _fit_tools(result["tools"])
                    repair_result(result)
                return item

    @property
    def last_context(self) -> object:
        return getattr(self.inner, "last_context", None)

    def __aiter__(self) -> "FilteredStream":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> "FilteredStream":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _fit_tools(listed: list[Any]) -> list[dict[str, Any]]:
    """Returns the tools of one page that have a name and a schema, because one invalid tool would make the SDK reject
    the page.

    Drops output schemas, because validating a hostile one could take forever."""
    found: list[dict[str, Any]] = []
    for one in listed[:TOOLS_PER_PAGE_MAX]:
        tool = cast(dict[str, Any], one) if isinstance(one, dict) else {}
        schema, hints, description = (tool.get(key) for key in ("inputSchema", "annotations", "description"))
        if not isinstance(tool.get("name"), str) or not isinstance(schema, dict):
            continue
        # changed so that the SDK accepts the schema. `clean_schema` checks what the server sent.
        fit: dict[str, Any] = {**cast(dict[str, Any], schema), "type": "object"}
        properties, required = fit.pop("properties", None), fit.pop("required", None)
        if isinstance(properties, dict):
            items = cast(dict[str, Any], properties).items()
            fit["properties"] = {name: one for name, one in items if isinstance(one, dict)}
        if isinstance(required, list) and all(isinstance(one, str) for one in cast(list[Any], required)):
            fit["required"] = required
        is_hinted = json_fields(hints).get("readOnlyHint") is True
        fields = json_fields(tool.get("execution"))
        found.append(
            {
                "name": tool["name"],
                "description": description if isinstance(description, str) else "",
                "inputSchema": fit,
                "annotations": {"readOnlyHint": is_hinted},
                "_meta": {SCHEMA_KEY: schema, TASK_KEY: fields.get("taskSupport") == "required"},
            }
        )
    return found
