"""A live connection to an MCP server, and a check that a server works. Slow to import, because of the MCP SDK."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import httpx2
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    Implementation,
    ListToolsResult,
    Tool,
)
from pydantic import ValidationError

from core.context.untrusted_text import clean_json, clean_line
from core.domain.messages import JsonObject
from core.failpoints import Failpoint
from core.mcp.results import tool_output
from core.mcp.settings import McpServerConfig, redact, secret_values
from core.mcp.tools import usable_tools
from core.mcp.transports import ConnectionState, open_transport
from core.tasks import cancel, spawn
from core.tools.tool import ToolContext, ToolOutput

log = logging.getLogger(__name__)

CONNECT = Failpoint("mcp.connect")
LIST = Failpoint("mcp.list")
CALL = Failpoint("mcp.call")

PAGES_MAX = 50
TOOLS_MAX = 2_000
LIST_SECONDS = 30.0
CLOSE_SECONDS = 8.0
CALL_GRACE_SECONDS = 2.0
"""How much longer than the SDK's own timeout a call may take, in case the SDK hangs."""

SESSION_ENDED = "Session terminated"
"""The SDK's message if an HTTP server no longer knows the session. The server did not carry out the request."""


class ServerUnreachable(Exception):
    """Raised if there is no connection, so no request was sent. The message is for the operator and the model."""


class CallLost(Exception):
    """Raised if the connection ended during the call or the server did not answer; the message says which."""


class CallRefused(Exception):
    """Raised if the server answered with a protocol error."""


@dataclass(slots=True)
class Connection:
    """A connection with its own task, as the SDK requires. `is_open` becomes False when the server goes away."""

    config: McpServerConfig
    tools_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _watch: ConnectionState = field(init=False)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: asyncio.Event = field(default_factory=asyncio.Event)
    _client: Client | None = None
    _owner: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._watch = ConnectionState(
            on_tools_changed=self.tools_changed.set, on_end=self._ended.set
        )

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self._ended.is_set()

    async def open(self, host_environment: Mapping[str, str]) -> None:
        """Connects to the server. Raises ServerUnreachable."""
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._owner = spawn(self._own(host_environment, ready), name=f"mcp {self.config.name}")
        seconds = self.config.connect_timeout_seconds
        try:
            with CONNECT:
                async with asyncio.timeout(seconds):
                    self._client = await ready
        except TimeoutError:
            raise ServerUnreachable(f"it did not answer within {seconds:g} s") from None
        finally:
            if self._client is None:
                await self.close()

    async def _own(
        self, host_environment: Mapping[str, str], ready: asyncio.Future[Client]
    ) -> None:
        try:
            async with (
                Client(
                    open_transport(self.config, host_environment, self._watch),
                    mode="legacy" if self.config.transport == "sse" else "auto",
                    cache=None,
                    client_info=Implementation(name="threadhand", version="1"),
                    read_timeout_seconds=self.config.connect_timeout_seconds,
                ) as client,
                _listening(client),
            ):
                if not ready.done():
                    ready.set_result(client)
                await _first(self._leaving, self._ended)
        except Exception as error:
            # catches everything, because any error of the SDK or a transport becomes one sentence
            if not ready.done():
                ready.set_exception(ServerUnreachable(explain_error(error)))
            elif not self._leaving.is_set():
                log.info(
                    "the connection to the MCP server %s ended: %s",
                    self.config.name,
                    explain_error(error),
                )
        finally:
            self._ended.set()
            if not ready.done():
                ready.cancel()

    async def tools(self) -> tuple[Tool, ...]:
        """Returns the server's tools, from all pages of the list within the limits. Raises ServerUnreachable."""
        client = self._reached()
        found: list[Tool] = []
        cursor: str | None = None
        self.tools_changed.clear()
        try:
            with LIST:
                async with asyncio.timeout(LIST_SECONDS):
                    for _ in range(PAGES_MAX):
                        page: ListToolsResult = await client.list_tools(cursor=cursor)
                        found.extend(page.tools)
                        if (
                            not page.next_cursor
                            or page.next_cursor == cursor
                            or len(found) > TOOLS_MAX
                        ):
                            break
                        cursor = page.next_cursor
        except Exception as error:
            raise ServerUnreachable(
                f"its tools could not be listed: {explain_error(error)}"
            ) from error
        return tuple(found[:TOOLS_MAX])

    async def call(self, tool: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """Calls a tool. Raises ServerUnreachable (the tool was not called), CallLost or CallRefused."""
        client = self._reached()
        seconds = self.config.call_timeout_seconds
        sent = clean_json(arguments)
        try:
            with CALL:
                async with asyncio.timeout(seconds + CALL_GRACE_SECONDS):
                    result = await client.call_tool(
                        tool, sent if isinstance(sent, dict) else {}, read_timeout_seconds=seconds
                    )
        except MCPError as error:
            raise self._meaning(error) from error
        except TimeoutError as error:
            raise CallLost(f"it did not answer within {seconds:g} s") from error
        except (ValidationError, RuntimeError) as error:
            raise CallRefused("its answer does not follow the protocol") from error
        except OSError as error:
            raise CallLost(explain_error(error)) from error
        return tool_output(result, server=self.config.name, tool=tool, context=context)

    def _meaning(self, error: MCPError) -> Exception:
        if error.message == SESSION_ENDED:
            self._ended.set()
            return ServerUnreachable("it was started anew and has forgotten the session")
        match error.code:
            case code if code == CONNECTION_CLOSED:
                return CallLost(self._watch.why)
            case code if code == REQUEST_TIMEOUT:
                return CallLost(f"it did not answer within {self.config.call_timeout_seconds:g} s")
            case _:
                return CallRefused(clean_line(error.message, 2_000) or f"error {error.code}")

    def _reached(self) -> Client:
        if self._client is None or not self.is_open:
            raise ServerUnreachable("there is no connection")
        return self._client

    async def close(self) -> None:
        """Disconnects and ends the process of a server over stdio."""
        self._leaving.set()
        owner, self._owner = self._owner, None
        if owner is None:
            return
        if self._client is not None:
            await asyncio.wait([owner], timeout=CLOSE_SECONDS)
        if not owner.done():
            await cancel(owner)


@asynccontextmanager
async def _listening(client: Client) -> AsyncGenerator[None, None]:
    """Context manager: subscribes to tool list changes if the protocol version requires a subscription."""
    capabilities = client.server_capabilities.tools
    is_asked = client.session.discover_result is not None
    async with AsyncExitStack() as stack:
        if is_asked and capabilities is not None and capabilities.list_changed:
            try:
                await stack.enter_async_context(client.listen(tools_list_changed=True))
            except (MCPError, RuntimeError, TimeoutError) as error:
                log.info("an MCP server does not tell of changed tools: %s", explain_error(error))
        yield


async def _first(*events: asyncio.Event) -> None:
    """Waits until any of the events is set."""
    tasks = [spawn(event.wait(), name="wait for an event") for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def explain_error(error: BaseException) -> str:
    """Returns a description of an error of the SDK or a transport, without addresses, keys or content."""
    if isinstance(error, BaseExceptionGroup):
        return explain_error(cast(BaseExceptionGroup[BaseException], error).exceptions[0])
    if isinstance(error, ServerUnreachable | CallLost | CallRefused):
        return str(error)
    if isinstance(error, httpx2.HTTPStatusError):
        return f"it answered with the status {error.response.status_code}"
    if isinstance(error, MCPError):
        return f"it answered with an error: {clean_line(error.message, 300)}"
    said = (sentence for kind, sentence in _SENTENCES if isinstance(error, kind))
    return next(said, f"it failed ({type(error).__name__})")


_SENTENCES: tuple[tuple[type[Exception], str], ...] = (
    (httpx2.TimeoutException, "it did not answer in time"),
    (TimeoutError, "it did not answer in time"),
    (FileNotFoundError, "its command (or its folder) does not exist"),
    (PermissionError, "its command may not be run"),
    (httpx2.TransportError, "no connection could be made"),
    (OSError, "no connection could be made"),
)


NAME_CHARACTERS_MAX = 60
REASON_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCheck:
    """The result of `check_server`. `problem` is empty if the server answered; `tools` are the server's own names of
    the usable tools, and `listed` counts all of its tools."""

    problem: str = ""
    tools: tuple[str, ...] = ()
    listed: int = 0


async def check_server(config: McpServerConfig, host_environment: Mapping[str, str]) -> ServerCheck:
    """Connects to a server, lists its tools and disconnects, within the server's own time limits.

    The result holds no secrets, and no process of the server remains.
    """
    secrets = secret_values(config)
    connection = Connection(config)
    try:
        await connection.open(host_environment)
        listed = await connection.tools()
        offers = await usable_tools(config, listed)
    except ServerUnreachable as error:
        return ServerCheck(problem=clean_line(redact(str(error), secrets), REASON_CHARACTERS_MAX))
    finally:
        await connection.close()
    names = tuple(clean_line(redact(one.tool, secrets), NAME_CHARACTERS_MAX) for one in offers)
    return ServerCheck(tools=names, listed=len(listed))
