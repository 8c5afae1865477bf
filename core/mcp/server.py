"""An MCP server for the agent's own tools, over stdio and streamable HTTP."""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Any, cast

import anyio
import mcp.types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import JsonValue

from core.domain.errors import ConfigurationError, ToolError
from core.domain.ids import new_id
from core.domain.messages import Message, ToolCall
from core.loop.calls import ENDING_TOOLS, CallOutcome, execute_call
from core.tasks import cancel, spawn
from core.tools.tool import ToolContext, ToolSet, prepare_call

log = logging.getLogger(__name__)

LINE_BYTES_MAX = 8 * 1024 * 1024
STDIN = 0


@asynccontextmanager
async def standard_input_lines() -> AsyncGenerator[anyio.AsyncFile[str] | None, None]:
    """Context manager: yields the lines of standard input, or None if it is a file or device that never blocks.

    The SDK would read in a thread. A thread that waits for a pipe cannot be cancelled, so it would keep the program
    alive after a signal. Inside the block, child processes inherit an empty standard input.
    """
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
        os.dup2(pipe.fileno(), STDIN)
        transport.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncGenerator[str, None]:
    try:
        while line := await reader.readline():
            yield line.decode("utf-8", "replace")
    except ValueError:
        log.warning("a message of the MCP client is longer than %d bytes", LINE_BYTES_MAX)


ContextFactory = Callable[[], ToolContext]
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
PATH = "/mcp"
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


def build_server(toolbox: ToolSet, context_factory: ContextFactory) -> Server[Any]:
    """Builds an MCP server with these tools, except those that talk to people in a thread, because there is no thread.

    Calls that need a person's approval are refused.
    """
    offered = ToolSet(
        {name: one for name, one in toolbox.tools.items() if name not in ENDING_TOOLS}
    )

    async def list_tools(
        _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_listed(offered))

    async def call_tool(
        _context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call = ToolCall(name=params.name, arguments=params.arguments or {}, call_id=new_id())
        try:
            prepared = prepare_call(call.name, call.arguments, offered)
        except ToolError as error:
            return _refused(str(error))
        if prepared.approval is not None:
            return _refused(f"{call.name} was not run: {NOT_ALLOWED}")
        log.info("an MCP client calls %s", call.name)
        return _result(await execute_call(call, prepared, context_factory()))

    return Server(
        "threadhand",
        version=metadata.version("threadhand"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _listed(offered: ToolSet) -> list[types.Tool]:
    return [
        types.Tool(
            name=spec.name,
            description=spec.description,
            input_schema=cast(dict[str, Any], spec.parameters),
            annotations=types.ToolAnnotations(idempotent_hint=offered.tools[name].is_idempotent),
        )
        for name, spec in offered.specs.items()
    ]


def _refused(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=why)], is_error=True)


def _result(outcome: CallOutcome) -> types.CallToolResult:
    said = [_text(outcome.result[key]) for key in ("output", "error") if outcome.result[key]]
    content: list[types.ContentBlock] = [types.TextContent(text="\n".join(said))]
    content.extend(filter(None, map(_picture, outcome.messages)))
    output = outcome.result["output"]
    return types.CallToolResult(
        content=content,
        structured_content=output if isinstance(output, dict) else None,
        is_error=outcome.outcome != "completed",
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _picture(message: Message) -> types.ImageContent | None:
    encoded, kind = message.content.get("base64"), message.content.get("mime_type")
    if message.type != "image_context" or not isinstance(encoded, str) or not isinstance(kind, str):
        return None
    return types.ImageContent(data=encoded, mime_type=kind)


async def serve_stdio(toolbox: ToolSet, context_factory: ContextFactory) -> None:
    """Serves the client on stdin and stdout until it disconnects, or until cancelled.

    No other code may write to stdout meanwhile; logs go to stderr. `context_factory` makes a context for each call.
    Contexts with the same thread id share one sandbox for the whole session.
    """
    server = build_server(toolbox, context_factory)
    async with standard_input_lines() as lines, stdio_server(stdin=lines) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def serve_http(
    toolbox: ToolSet,
    context_factory: ContextFactory,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
    on_ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serves clients over streamable HTTP until cancelled; calls `on_ready` with the URL once it accepts requests.

    Raises ConfigurationError for a public address without a token, or if the address cannot be bound.
    """
    if host not in LOOPBACK and not token:
        raise ConfigurationError(
            f"Serving MCP on {host} would let anybody on the network run tools: set THREADHAND_API_TOKEN, or serve on "
            "127.0.0.1."
        )
    app = cast(
        App,
        build_server(toolbox, context_factory).streamable_http_app(
            host=host, streamable_http_path=PATH
        ),
    )
    config = uvicorn.Config(
        _guarded(app, token),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    with _listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        on_ready(f"http://{shown}:{listener.getsockname()[1]}{PATH}")
        await _serve(config, listener)


async def _serve(config: uvicorn.Config, listener: socket.socket) -> None:
    """Serves until cancelled, then lets running calls finish within SHUTDOWN_SECONDS."""
    served = _Served(config)
    serving = spawn(served.serve([listener]), name="mcp server")
    try:
        await asyncio.shield(serving)
    finally:
        served.should_exit = True
        await asyncio.wait([serving], timeout=2 * SHUTDOWN_SECONDS)
        if not serving.done():
            await cancel(serving)


@contextlib.contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                f"MCP cannot be served on {host}:{port}: {error.strerror}."
            ) from error
        listener.listen()
        yield listener


class _Served(uvicorn.Server):
    """uvicorn without its own signal handling, because the program handles signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _guarded(app: App, token: str) -> App:
    """Requires the bearer token, unless no token is set."""
    expected = f"Bearer {token}".encode()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not token:
            await app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(given, expected):
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

    return guarded
