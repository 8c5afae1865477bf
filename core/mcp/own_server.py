"""An MCP server for the agent's own tools, over stdio and streamable HTTP."""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import re
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any, Never, cast

import anyio
import mcp.types as types
import uvicorn
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from uvicorn.protocols.http.h11_impl import H11Protocol

from core.domain.errors import ConfigurationError, RunError, ToolError
from core.domain.events import ActivityChanged, AgentEvent
from core.domain.ids import new_id
from core.domain.messages import ToolCall
from core.loop.calls import CallOutcome, execute_call
from core.tasks import cancel, spawn, wait_for_first
from core.tools.shell import CheckParams, ExecuteParams, session_of_call
from core.tools.tool import PreparedCall, ToolContext, ToolSet, prepare_call

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 8 * 1024 * 1024
STDIN = 0


@asynccontextmanager
async def standard_input_lines() -> AsyncGenerator[anyio.AsyncFile[str] | None, None]:
    """Context manager: yields the lines of standard input, or None if it is a file or device that never blocks.

    The SDK would read in a thread. A thread that waits for a pipe cannot be cancelled, so it would keep the program
    alive after a signal. Inside the block, child processes inherit an empty standard input."""
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
        # the cast is safe, because the SDK only iterates over the lines
        yield cast("anyio.AsyncFile[str]", _lines(reader))
    finally:
        if not pipe.closed:  # the transport closes the pipe when stdin ends
            os.dup2(pipe.fileno(), STDIN)
        transport.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    """Yields the lines. A line over the limit is replaced by a request that is answered with an error, provided that
    the ID of the message is at its beginning or its end."""
    while True:
        try:
            line = await reader.readuntil()
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError as error:
            log.warning("a message of the MCP client is longer than %d bytes", LINE_BYTES_MAX)
            ends = await _skip_line(reader, error.consumed)
            message_id = _FIRST_ID.search(ends) or _LAST_ID.search(ends)
            asked = message_id and {"jsonrpc": "2.0", "id": json.loads(message_id[1]), "method": TOO_LARGE}
            yield f"{json.dumps(asked)}\n" if asked else "\n"
            continue
        if not line:
            return
        yield line.decode("utf-8", "replace")


async def _skip_line(reader: asyncio.StreamReader, buffered: int) -> bytes:
    """Reads to the end of the line. Returns its beginning and its end."""
    head = end = b""
    while True:
        piece = await reader.readexactly(buffered)
        head, end = head or piece[:ENVELOPE_BYTES_MAX], (end + piece)[-ENVELOPE_BYTES_MAX:]
        try:
            rest = await reader.readuntil()
        except asyncio.LimitOverrunError as error:
            buffered = error.consumed
            continue
        except asyncio.IncompleteReadError as error:
            rest = error.partial
        return head + b"\n" + (end + rest)[-ENVELOPE_BYTES_MAX:]


ENVELOPE_BYTES_MAX = 200
TOO_LARGE = "threadhand/too_large"
_FIRST_ID = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("[\w-]{1,80}"|\d{1,18})\s*,')
_LAST_ID = re.compile(rb'"id"\s*:\s*("[\w-]{1,80}"|\d{1,18})\s*\}\s*$')


OpenContext = Callable[[], AbstractAsyncContextManager[ToolContext]]
"""Opens the tool context of one client session and deletes its sandbox at the end."""


@dataclass(slots=True)
class ClientSessions:
    """The tool contexts of client sessions, each with its own sandbox. Clients without a session share one context: the
    only client over stdio, and all clients over HTTP with MCP 2026-07-28, which has no sessions."""

    open_context: OpenContext
    _ready: dict[str, asyncio.Future[ToolContext]] = field(default_factory=dict[str, asyncio.Future[ToolContext]])
    _held: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def session_context(self, session: ServerSession) -> ToolContext:
        """Returns the session's context, which is opened for its first call. Raises what opening it raises."""
        # the SDK offers no other way to the session's ID and to its end
        connection = cast(Connection, getattr(session, "_connection"))  # noqa: B009 - not public
        return await self.context(connection.session_id or "", connection.exit_stack)

    async def context(self, session_id: str = "", stack: AsyncExitStack | None = None) -> ToolContext:
        """Returns the context of a session. The session ends when the stack closes."""
        ready = self._ready.get(session_id)
        if ready is None:
            ready = self._ready[session_id] = asyncio.get_running_loop().create_future()
            over = asyncio.Event() if session_id else self._closing
            task = spawn(self._hold(session_id, ready, over), name="mcp client session")
            self._held.add(task)
            task.add_done_callback(self._held.discard)
            if session_id and stack is not None:
                stack.callback(over.set)
        return await asyncio.shield(ready)

    async def _hold(self, session_id: str, ready: asyncio.Future[ToolContext], over: asyncio.Event) -> None:
        try:
            async with self.open_context() as context:
                if not ready.cancelled():
                    ready.set_result(context)
                await wait_for_first(over, self._closing)
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            self._ready.pop(session_id, None)

    async def close(self) -> None:
        """Ends all sessions and deletes their sandboxes."""
        self._closing.set()
        if self._held:
            await asyncio.wait(self._held)


LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
PATH = "/mcp"
PROGRESS_SECONDS = 5.0
CONNECTIONS_MAX = 200
ARRIVAL_SECONDS = 10.0
"""How long a request's head may take, and the time in which BODY_BYTES_MIN of a body must arrive."""
BODY_BYTES_MIN = 1024
BODY_CHECKS_MAX = 30
"""How many multiples of ARRIVAL_SECONDS a whole body may take."""
SHUTDOWN_SECONDS = 2
"""How long running calls may continue after the server begins to stop."""

NOT_ALLOWED = "a person must allow it first, and nobody can be asked here. Find a way without it."

INSTRUCTIONS = (
    "Tools of an agent with its own sandboxed machine. Paths are relative to /workspace; files and shell sessions stay "
    "between calls."
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def build_server(toolbox: ToolSet, sessions: ClientSessions) -> Server[Any]:
    """Builds an MCP server with these tools, except those that require a thread, because there is none.

    Calls that need a person's approval are refused."""
    offered = toolbox.without(("thread", "chat"))

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        listed = list[types.Tool]()
        for name, spec in offered.specs.items():
            tool, schema = offered.tools[name], cast(dict[str, Any], spec.parameters)
            hints = types.ToolAnnotations(read_only_hint=tool.effect == "reads", idempotent_hint=tool.is_idempotent)
            listed.append(
                types.Tool(name=spec.name, description=spec.description, input_schema=schema, annotations=hints)
            )
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        request: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call = ToolCall(name=params.name, arguments=params.arguments or {}, call_id=new_id())
        try:
            prepared = prepare_call(call.name, call.arguments, offered)
        except ToolError as error:
            return _refused(str(error))
        if prepared.approval is not None:
            return _refused(f"{call.name} was not run: {NOT_ALLOWED}")
        log.info("an MCP client calls %s", call.name)
        context = await sessions.session_context(request.session)
        outcome = await _run(call, prepared, context, request.session)
        values = (outcome.result[key] for key in ("output", "error") if outcome.result[key])
        said = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values]
        content: list[types.ContentBlock] = [types.TextContent(text="\n".join(said))]
        for message in outcome.messages:
            encoded, kind = message.content.get("base64"), message.content.get("mime_type")
            if message.type == "image_context" and isinstance(encoded, str) and isinstance(kind, str):
                content.append(types.ImageContent(data=encoded, mime_type=kind))
        output = outcome.result["output"]
        return types.CallToolResult(
            content=content,
            structured_content=output if isinstance(output, dict) else None,
            is_error=outcome.outcome != "completed",
        )

    async def refuse_large(_request: ServerRequestContext[Any], _params: types.RequestParams) -> Never:
        said = f"The message is larger than {LINE_BYTES_MAX >> 20} MB and was not read. Send less at once."
        raise MCPError(types.INVALID_REQUEST, said)

    server = Server[Any](
        "threadhand",
        version=metadata.version("threadhand"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.add_request_handler(TOO_LARGE, types.RequestParams, refuse_large)
    return server


async def _run(call: ToolCall, prepared: PreparedCall, context: ToolContext, session: ServerSession) -> CallOutcome:
    """Runs a call and reports its progress. If the client cancels it, the command that it runs is killed."""
    activities: asyncio.Queue[str] = asyncio.Queue()

    def emit(event: AgentEvent) -> None:
        if isinstance(event, ActivityChanged):
            activities.put_nowait(event.text)

    reporting = spawn(_report(session, activities, prepared.title), name="mcp progress")
    try:
        return await execute_call(call, prepared, replace(context, emit=emit, web_results={}))
    except asyncio.CancelledError:
        spawn(_end_command(prepared, context), name="mcp cancelled command")
        raise
    finally:
        await cancel(reporting)


async def _report(session: ServerSession, activities: asyncio.Queue[str], title: str) -> None:
    """Reports the seconds since the start, with each new activity and at least every PROGRESS_SECONDS."""
    clock = asyncio.get_running_loop().time
    started = clock()
    message = title
    with suppress(MCPError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_SECONDS):
                    message = await activities.get()
            await session.report_progress(round(clock() - started, 3), None, message)


async def _end_command(prepared: PreparedCall, context: ToolContext) -> None:
    """Kills the cancelled command. Other tools end by themselves, and so does a wait for a command."""
    place, _, name = prepared.subject.partition("/")
    is_wait = isinstance(prepared.params, CheckParams)
    if place == "shell" and name and prepared.tool.effect == "acts" and not is_wait:
        with suppress(ToolError, RunError):
            shell = (await context.sandbox()).shell
            if isinstance(prepared.params, ExecuteParams):  # it runs under another name if its session was busy
                name = await session_of_call(shell, prepared.params)
            if name:
                await shell.terminate(name, keeps_state=True)


def _refused(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=why)], is_error=True)


async def serve_stdio(toolbox: ToolSet, open_context: OpenContext, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serves the client on stdin and stdout until it disconnects, or until cancelled.

    No other code may write to stdout meanwhile; logs go to stderr. Calls `on_ready` once the session is open."""
    sessions = ClientSessions(open_context)
    server = build_server(toolbox, sessions)
    try:
        await sessions.context()
        on_ready()
        async with standard_input_lines() as lines, stdio_server(stdin=lines) as streams:
            await server.run(*streams, server.create_initialization_options())
    except* (BrokenPipeError, ConnectionError, anyio.BrokenResourceError):
        log.info("the MCP client has left")
    finally:
        await sessions.close()


async def serve_http(
    toolbox: ToolSet,
    open_context: OpenContext,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    on_ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serves clients over streamable HTTP until cancelled. Calls `on_ready` with the URL once it accepts requests.

    Raises ConfigurationError for a public address without a token, or if the address cannot be bound."""
    if host not in LOOPBACK and not token:
        raise ConfigurationError(
            f"Serving MCP on {host} would let anybody on the network run tools: set THREADHAND_API_TOKEN, or serve on "
            "127.0.0.1."
        )
    sessions = ClientSessions(open_context)
    app = cast(App, build_server(toolbox, sessions).streamable_http_app(host=host, streamable_http_path=PATH))
    expected = token.encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not token:
            await app(scope, receive, send)
            return
        given: bytes = dict(scope["headers"]).get(b"authorization", b"")
        scheme, _, credentials = given.partition(b" ")
        is_right = hmac.compare_digest(credentials.strip(), expected)
        if scheme.lower() == b"bearer" and is_right:
            await app(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 401,
                "headers": [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")],
            }
        )
        await send({"type": "http.response.body"})

    config = uvicorn.Config(
        guarded,
        log_config=None,
        access_log=False,
        http=_HttpConnection,
        ws="none",  # it would use up connections that the limits count
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    with _listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{listener.getsockname()[1]}{PATH}")
        try:
            served = _Served(config)
            serving = spawn(served.serve([listener]), name="mcp server")
            try:
                await asyncio.shield(serving)
            finally:
                served.should_exit = True
                await asyncio.wait([serving], timeout=2 * SHUTDOWN_SECONDS)
                if not serving.done():
                    await cancel(serving)
        finally:
            await sessions.close()


@contextlib.contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigurationError(f"MCP cannot be served on {host}:{port}: {error.strerror}.") from error
        listener.listen()
        yield listener


class _Served(uvicorn.Server):
    """uvicorn without its own signal handling, because the program handles signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _HttpConnection(H11Protocol):
    """Ends a connection if there are too many, or if its request does not arrive in time."""

    _timer: asyncio.TimerHandle | None = None
    _received = 0
    _seen: tuple[str, object] = ("IDLE", None)
    _seen_count = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._timer = self.loop.call_later(ARRIVAL_SECONDS, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def _check(self) -> None:
        """Ends the connection if its request has not arrived since the last check. A handler that does not read the
        body is given time."""
        state = self.conn.their_state.__name__  # of h11, which belongs to uvicorn
        same = (state, self.cycle) == self._seen
        self._seen, self._seen_count = (state, self.cycle), self._seen_count + 1 if same else 0
        is_slow = self._received < BODY_BYTES_MIN or self._seen_count > BODY_CHECKS_MAX
        is_body_late = state == "SEND_BODY" and is_slow and not self.flow.read_paused
        if same and (state == "IDLE" or is_body_late):
            log.debug("an MCP client's request did not arrive in time")
            self.transport.abort()
            return
        self._received = 0
        self._timer = self.loop.call_later(ARRIVAL_SECONDS, self._check)
