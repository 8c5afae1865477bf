"""A live connection to an MCP server, and a check that a server works. Slow to import, because of the MCP SDK."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast

import httpx2
from mcp import Client
from mcp.client.auth import OAuthFlowError
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    UNSUPPORTED_PROTOCOL_VERSION,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    Tool,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from core.context.untrusted_text import clean_json, clean_line
from core.domain.events import ActivityChanged
from core.domain.json import JsonObject, json_fields
from core.failpoints import Failpoint
from core.mcp.arguments import ANSWERS
from core.mcp.elicitation import RunningCall, add_questions, answer_elicitation, find_asked_questions
from core.mcp.http_client import HTTP_REFUSED, SESSION_FORGOTTEN
from core.mcp.oauth import Authorize
from core.mcp.refused_tools import TOOLS_MAX
from core.mcp.resources import call_resource_tool, list_resource_tools, read_pages
from core.mcp.result_repair import MALFORMED
from core.mcp.results import convert_result
from core.mcp.secrets import redact, secret_values
from core.mcp.settings import McpServerConfig, longest_call_seconds
from core.mcp.tools import select_usable_tools
from core.mcp.transports import ConnectionState, open_transport
from core.tasks import cancel, spawn, wait_for_first
from core.tools.catalogue import all_tools
from core.tools.tool import ToolContext, ToolOutput

log = logging.getLogger(__name__)

CONNECT = Failpoint("mcp.connect")
LIST = Failpoint("mcp.list")
CALL = Failpoint("mcp.call")

PAGES_MAX = 50
LISTED_MAX = 2_000
LIST_SECONDS = 30.0
CLOSE_SECONDS = 8.0
PROGRESS_CHARACTERS_MAX = 120
_CURRENT_CALL: ContextVar[RunningCall | None] = ContextVar("mcp_call", default=None)
"""The call whose own stream or result a message of the server came with. The SDK hands the context of a call on to what
handles such a message."""


class ServerUnreachable(Exception):
    """Raised if there is no connection, so no request was sent. The message is for the operator and the model.

    `may_be_older`: the server ended or stayed silent, so it may not know the current protocol's first message."""

    def __init__(self, message: str, *, may_be_older: bool = False) -> None:
        super().__init__(message)
        self.may_be_older = may_be_older


class CallLost(Exception):
    """Raised if the connection ended during the call or the server did not answer; the message says which."""


class CallFailed(Exception):
    """Raised if the server answered with a protocol error. The tool may have run before it failed."""


@dataclass(slots=True)
class Connection:
    """A connection with its own task, as the SDK requires. `is_open` becomes False when the server goes away.

    With `is_legacy`, the connection begins with `initialize`, the first message of protocol versions before 2026."""

    config: McpServerConfig
    is_legacy: bool = False
    authorize: Authorize | None = None
    tools_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _watch: ConnectionState = field(init=False)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _leaving: asyncio.Event = field(default_factory=asyncio.Event)
    _client: Client | None = None
    _owner: asyncio.Task[None] | None = None
    _is_forgotten: bool = False
    _running: list[RunningCall] = field(default_factory=list[RunningCall])
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _one_call: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runs_one_call: bool = False
    _ours: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._watch = ConnectionState(on_tools_changed=self.tools_changed.set, on_end=self._ended.set)

    @property
    def is_open(self) -> bool:
        return self._client is not None and not self._ended.is_set() and not self._is_forgotten

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
            raise ServerUnreachable(f"it did not answer within {seconds:g} s", may_be_older=True) from None
        finally:
            if self._client is None:
                await self.close()

    async def _own(self, host_environment: Mapping[str, str], ready: asyncio.Future[Client]) -> None:
        async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
            del context
            return self._answer_elicitation(params)

        try:
            async with (
                Client(
                    open_transport(self.config, host_environment, self._watch, self.authorize),
                    mode="legacy" if self.is_legacy else "auto",
                    cache=None,
                    client_info=Implementation(name="threadhand", version="1"),
                    read_timeout_seconds=self.config.connect_timeout_seconds,
                    elicitation_callback=elicit,
                ) as client,
                _listening(client),
            ):
                self.is_legacy = client.session.discover_result is None
                if not ready.done():
                    ready.set_result(client)
                await wait_for_first(self._leaving, self._ended)
        except Exception as error:
            # catches everything, because any error of the SDK or a transport becomes one sentence
            if not ready.done():
                ready.set_exception(self._unreachable(error))
            elif not self._leaving.is_set():
                log.info("the connection to the MCP server %s ended: %s", self.config.name, explain_error(error))
        finally:
            self._ended.set()
            if not ready.done():
                ready.cancel()

    @property
    def instructions(self) -> str:
        """The server's instructions for the use of its tools."""
        return (self._client.instructions if self._client is not None else None) or ""

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        """Returns the error with the reason. For a process that ended, the reason is its exit code and its last line on
        stderr."""
        while isinstance(error, BaseExceptionGroup):
            error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
        has_ended = isinstance(error, MCPError) and self._is_end(error)
        is_silent = isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT
        return ServerUnreachable(
            self._watch.why if has_ended else explain_error(error), may_be_older=has_ended or is_silent
        )

    async def tools(self) -> tuple[Tool, ...]:
        """Returns our tools for the server's resources and prompts, then the server's own tools from all pages of the
        list, within the limits. Raises ServerUnreachable."""
        client = self._reached()
        self.tools_changed.clear()
        try:
            with LIST:
                async with asyncio.timeout(LIST_SECONDS):
                    found = await read_pages(client.list_tools, lambda page: page.tools, PAGES_MAX, LISTED_MAX)
                    ours = await list_resource_tools(client, found)
        except Exception as error:
            self._is_forgotten |= isinstance(error, MCPError) and error.code == SESSION_FORGOTTEN
            raise ServerUnreachable(f"its tools could not be listed: {self._unreachable(error)}") from error
        self._ours = frozenset(one.name for one in ours)
        return (*ours, *found)

    async def call(self, tool: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """Calls a tool. Raises ServerUnreachable (the tool was not called), CallLost or CallFailed."""
        answers = arguments.get(ANSWERS)
        running = RunningCall(
            context.thread_id,
            self.config.name,
            tool,
            answers if isinstance(answers, dict) else None,
            await find_asked_questions(context) if isinstance(answers, dict) else frozenset(),
        )
        async with self._one_call if self._runs_one_call else nullcontext():
            client = self._reached()
            self._running.append(running)
            self._idle.clear()
            token = _CURRENT_CALL.set(running)
            try:
                output = await self._call(client, tool, arguments, context)
            except CallFailed as error:
                if not (running.questions or running.may_have_asked):
                    raise
                output = ToolOutput(output=f"the error {error}", is_success=False)
            finally:
                _CURRENT_CALL.reset(token)
                self._running.remove(running)
                if not self._running:
                    self._idle.set()
        return add_questions(running, output)

    async def _call(self, client: Client, tool: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        seconds = self.config.call_timeout_seconds
        cleaned = clean_json({key: value for key, value in arguments.items() if key != ANSWERS})
        sent = cleaned if isinstance(cleaned, dict) else {}
        clock = asyncio.get_running_loop().time
        last_end = clock() + longest_call_seconds(self.config)
        try:
            with CALL:
                async with asyncio.timeout(seconds) as limit:
                    if tool in self._ours:
                        return await call_resource_tool(client, self.config.name, tool, sent, context)

                    async def note(progress: float, total: float | None, message: str | None) -> None:
                        if not limit.expired():
                            limit.reschedule(min(clock() + seconds, last_end))
                        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                        said = clean_line(message or "", PROGRESS_CHARACTERS_MAX) or share
                        context.emit(ActivityChanged(text=f"{self.config.name}: {said}"))

                    result = await client.call_tool(
                        tool, sent, read_timeout_seconds=longest_call_seconds(self.config) + 1, progress_callback=note
                    )
        except MCPError as error:
            if error.code == SESSION_FORGOTTEN:
                self._is_forgotten = True
                raise ServerUnreachable(error.message) from error
            if error.code == HTTP_REFUSED:
                status = error.error.data
                is_lost = isinstance(status, int) and status >= 500
                raise (CallLost if is_lost else CallFailed)(error.message) from error
            if self._is_end(error):
                raise CallLost(self._watch.why) from error
            if error.code == PARSE_ERROR and error.message == MALFORMED:
                raise CallLost("its answer is malformed") from error
            if error.code == REQUEST_TIMEOUT:
                raise CallLost(f"it did not answer within {seconds:g} s") from error
            raise CallFailed(clean_line(error.message, 2_000) or f"error {error.code}") from error
        except TimeoutError as error:
            raise CallLost(f"it did not answer within {seconds:g} s") from error
        except (ValidationError, RuntimeError) as error:
            raise CallLost("its answer does not follow the protocol") from error
        except OSError as error:
            raise CallLost(explain_error(error)) from error
        return await convert_result(result, server=self.config.name, tool=tool, context=context)

    def _answer_elicitation(self, params: ElicitRequestParams) -> ElicitResult:
        """Answers a question of the server. Over stdio and SSE, nothing in a question says which call it belongs to. If
        only one call runs, it is that one, so after the first such question the calls run one at a time."""
        call = _CURRENT_CALL.get()
        if call is None:
            self._runs_one_call = True
            if len(self._running) != 1:
                for running in self._running:
                    running.may_have_asked = True
                return ElicitResult(action="cancel")
            call = self._running[0]
        return answer_elicitation(params, call)

    def _is_end(self, error: MCPError) -> bool:
        """Returns whether the error means that the connection ended. Many servers use the same code for errors of their
        own."""
        is_sdk = error.message.startswith(("Connection closed", "SSE stream"))
        return error.code == CONNECTION_CLOSED and (self._watch.has_ended or is_sdk)

    def _reached(self) -> Client:
        if self._client is None or not self.is_open:
            raise ServerUnreachable("there is no connection")
        return self._client

    async def close_when_idle(self) -> None:
        """Closes the connection once the calls that wait for an answer have ended."""
        try:
            async with self._one_call:
                if self._running:
                    await wait_for_first(self._idle, self._ended)
        finally:
            await self.close()

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


async def open_connection(
    config: McpServerConfig,
    host_environment: Mapping[str, str],
    *,
    is_legacy: bool = False,
    authorize: Authorize | None = None,
) -> tuple[Connection, tuple[Tool, ...]]:
    """Opens a connection and lists the server's tools. Raises ServerUnreachable.

    Many servers over stdio, for example those on the Rust SDK, exit on the first message of MCP 2026-07-28. They are
    started once more with the older handshake."""
    is_legacy = is_legacy or config.protocol == "legacy" or config.transport == "sse"
    try:
        return await _open(Connection(config, is_legacy, authorize), host_environment)
    except ServerUnreachable as error:
        if is_legacy or config.transport != "stdio" or not error.may_be_older:
            raise
    return await _open(Connection(config, True, authorize), host_environment)


async def _open(connection: Connection, host_environment: Mapping[str, str]) -> tuple[Connection, tuple[Tool, ...]]:
    try:
        await connection.open(host_environment)
        return connection, await connection.tools()
    except BaseException:
        await connection.close()
        raise


@asynccontextmanager
async def _listening(client: Client) -> AsyncGenerator[None, None]:
    """Context manager: subscribes to tool list changes if the protocol version requires a subscription."""
    offered = client.server_capabilities
    tools, prompts = (bool(one and one.list_changed) for one in (offered.tools, offered.prompts))
    is_asked = client.session.discover_result is not None
    async with AsyncExitStack() as stack:
        if is_asked and (tools or prompts):
            try:
                await stack.enter_async_context(client.listen(tools_list_changed=tools, prompts_list_changed=prompts))
            except (MCPError, RuntimeError, TimeoutError) as error:
                log.info("an MCP server does not tell of changed tools: %s", explain_error(error))
        yield


def explain_error(error: BaseException) -> str:
    """Returns a description of an error of the SDK or a transport, without addresses, keys or content."""
    if isinstance(error, BaseExceptionGroup):
        return explain_error(cast(BaseExceptionGroup[BaseException], error).exceptions[0])
    if isinstance(error, ServerUnreachable | CallLost | CallFailed):
        return str(error)
    if isinstance(error, httpx2.HTTPStatusError):
        return f"it answered with the status {error.response.status_code}"
    if isinstance(error, MCPError):
        if error.code in (HTTP_REFUSED, SESSION_FORGOTTEN):
            return error.message
        if error.code == UNSUPPORTED_PROTOCOL_VERSION:
            named = json_fields(error.error.data).get("supported")
            versions = cast(list[object], named) if isinstance(named, list) else []
            return _explain_versions(", ".join(map(str, versions[:10])))
        return f"it answered with an error: {clean_line(error.message, 300)}"
    if isinstance(error, OAuthFlowError):
        return clean_line(str(error), 300)
    if isinstance(error, RuntimeError) and "protocol version" in str(error):
        return _explain_versions(str(error).rpartition(":")[2])
    said = (sentence for kind, sentence in _SENTENCES if isinstance(error, kind))
    return next(said, f"it failed ({type(error).__name__})")


def _explain_versions(theirs: str) -> str:
    ours = ", ".join((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS))
    return f"it speaks MCP {clean_line(theirs, 200) or 'of an unknown version'}; this program speaks {ours}"


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
    """The result of `check_server`. `problem` is empty if the server answered. `tools` are the server's own names of
    the usable tools, `listed` counts all of its tools, and `left_out` describes the enabled tools that cannot be
    used."""

    problem: str = ""
    tools: tuple[str, ...] = ()
    listed: int = 0
    left_out: tuple[str, ...] = ()


async def check_server(
    config: McpServerConfig, host_environment: Mapping[str, str], authorize: Authorize | None = None
) -> ServerCheck:
    """Connects to a server, lists its tools and disconnects, within the server's own time limits.

    The result holds no secrets, and no process of the server remains."""
    secrets = secret_values(config)
    try:
        connection, listed = await open_connection(config, host_environment, authorize=authorize)
    except ServerUnreachable as error:
        return ServerCheck(problem=clean_line(redact(str(error), secrets), REASON_CHARACTERS_MAX))
    await connection.close()
    offers, left_out = await select_usable_tools(config, listed)
    room = TOOLS_MAX - len(all_tools())
    if len(offers) > room:
        why = f"a model accepts {TOOLS_MAX} with the agent's own, name those you want in enabled_tools"
        left_out = (f"{len(offers) - room} in runs with all own tools: {why}", *left_out)
    return ServerCheck(
        tools=tuple(_shown(one.tool, secrets, NAME_CHARACTERS_MAX) for one in offers[:room]),
        listed=len(listed),
        left_out=tuple(_shown(one, secrets, REASON_CHARACTERS_MAX) for one in left_out),
    )


def _shown(text: str, secrets: tuple[str, ...], characters_max: int) -> str:
    return clean_line(redact(text, secrets), characters_max)
