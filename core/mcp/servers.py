"""Connects to the configured MCP servers on demand, reconnects after a loss, and provides the servers' tools."""

import asyncio
import fnmatch
import importlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core.context.untrusted_text import clean_text
from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.mcp.arguments import McpArguments
from core.mcp.secrets import redact, secret_values
from core.mcp.settings import McpServerConfig, longest_call_seconds
from core.mcp.tool_names import tool_name_prefix
from core.mcp.tools import ListedTool, matches_any, reach_of_call, select_usable_tools
from core.tasks import backoff_seconds, cancel, spawn
from core.tools.tool import Tool, ToolContext, ToolOutput

log = logging.getLogger(__name__)

if TYPE_CHECKING:  # importing the SDK takes a second, so it is delayed until first use
    from mcp import types

    from core.mcp.connection import Connection
    from core.mcp.oauth import Authorize

BACKOFF_SECONDS_MAX = 60.0
RECONNECT_WAIT_SECONDS = 5.0
"""How long a call waits for the next connection attempt before it fails."""

LIST_AGE_SECONDS_MAX = 300.0
"""Older tool lists are refreshed in the background, because not every server announces changes."""

PROBE_SECONDS = 5.0
INSTRUCTION_CHARACTERS_MAX = 4_000
STARTING = "it is still starting"


@dataclass(slots=True)
class ReconnectingServer:
    """A server to which a connection is made on demand. `offers` are its tools as last listed.

    `absence` is the reason why its tools are missing, and empty if they are not.

    `tools_needing_approval` only grows. A tool that needed approval once keeps needing it, even if the server later
    marks it as read-only."""

    config: McpServerConfig
    host_environment: Mapping[str, str]
    backoff_seconds: float = 1.0
    authorize: "Authorize | None" = None
    offers: tuple[ListedTool, ...] = ()
    absence: str = STARTING
    instructions: str = ""
    first_wanted_at: float | None = None
    tools_needing_approval: frozenset[str] = frozenset()
    _connection: "Connection | None" = None
    _opening: "asyncio.Task[Connection | str] | None" = None
    _reading: asyncio.Task[None] | None = None
    _watching: asyncio.Task[None] | None = None
    _retiring: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _failures: int = 0
    _next_attempt_at: float = 0.0
    _read_at: float = 0.0
    _is_suspect: bool = False
    _is_told: bool = False
    _is_closed: bool = False
    _is_legacy: bool = False
    _sdk: Any = field(default=None, repr=False)

    async def refresh_tools(self) -> tuple[ListedTool, ...]:
        """Connects and refreshes the tool list if needed. Returns no tools if the server cannot be reached."""
        connection = await self._connected(patience_seconds=0)
        self.absence = connection if isinstance(connection, str) else ""
        if self.absence:
            return ()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        elif asyncio.get_running_loop().time() - self._read_at > LIST_AGE_SECONDS_MAX:
            self._read_beside()
        return self.offers

    async def call(self, tool: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """Calls a tool. Retries once, on a new connection, only if the first attempt certainly did nothing.

        Raises ToolError."""
        name = self.config.name
        for attempt in (1, 2):
            connection = await self._connected(patience_seconds=RECONNECT_WAIT_SECONDS)
            if isinstance(connection, str):
                raise ToolError(
                    f"The MCP server {name} cannot be reached: {connection}. Go on without its tools, or try later."
                )
            try:
                output = await connection.call(tool, arguments, context)
            except self._sdk.ServerUnreachable as error:
                log.info("the MCP server %s was lost: %s", name, error)
                self._failed()
                if attempt == 2:
                    raise ToolError(f"The MCP server {name} cannot be reached: {error}.") from error
                continue
            except self._sdk.CallLost as error:
                log.warning("a call to the MCP server %s was lost: %s", name, error)
                if connection.is_open:
                    self._is_suspect = True
                else:
                    self._failed()
                raise ToolError(
                    f"The MCP server {name} gave no result: {error}. It may or may not have done what was asked: look"
                    " before you ask again."
                ) from error
            except self._sdk.CallFailed as error:
                raise ToolError(f"The MCP server {name} answered with an error: {error}") from error
            self._failures = 0
            return output
        raise AssertionError("unreachable")

    async def _connected(self, *, patience_seconds: float) -> "Connection | str":
        """Returns an open connection, or the reason why there is none."""
        if self._is_closed:
            return "this program is about to end"
        if self._connection is not None and self._is_suspect:
            # the server did not answer a call, so the connection is abandoned if it still does not answer
            suspect, self._is_suspect = self._connection, False
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._take(await suspect.tools())
            except (TimeoutError, self._sdk.ServerUnreachable):
                log.warning("the MCP server %s no longer answers and is left", self.config.name)
                self._failed()
                if self._connection is suspect:
                    self._connection = None
                await suspect.close()
        if self._connection is not None and self._connection.is_open:
            return self._connection
        wait = self._next_attempt_at - asyncio.get_running_loop().time()
        if self._opening is None and wait > patience_seconds:
            return f"it failed {self._failures} times in a row and is tried again in {wait:.0f} s"
        opening = self._start_opening(max(0.0, wait))
        await asyncio.wait([opening])
        return "the attempt was given up" if opening.cancelled() else opening.result()

    def reopen(self) -> None:
        """Starts a new connection at once. Running calls end on the old connection."""
        self._failures, self._next_attempt_at = 0, 0.0
        if not self._is_closed:
            self._start_opening(0.0)

    def _start_opening(self, wait_seconds: float) -> "asyncio.Task[Connection | str]":
        """Returns the attempt that is in progress, or starts a new one."""
        if self._opening is None:
            self._opening = spawn(self._open(wait_seconds), name=f"mcp {self.config.name} opening")
            self._opening.add_done_callback(self._end_opening)
        return self._opening

    def _end_opening(self, _task: object) -> None:
        self._opening = None

    async def _open(self, wait_seconds: float) -> "Connection | str":
        await asyncio.sleep(wait_seconds)
        if self._sdk is None:
            self._sdk = await asyncio.to_thread(importlib.import_module, "core.mcp.connection")
        if self._connection is not None:
            retiring = spawn(self._connection.close_when_idle(), name=f"mcp {self.config.name} end")
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
            self._connection = None
        try:
            connection, listed = await self._sdk.open_connection(
                self.config, self.host_environment, is_legacy=self._is_legacy, authorize=self.authorize
            )
            await self._take(listed)
            self._is_legacy = connection.is_legacy
            self.instructions = clean_text(connection.instructions, INSTRUCTION_CHARACTERS_MAX)
        except self._sdk.ServerUnreachable as error:
            self._is_legacy = False
            self._failed()
            if not self._is_told:
                log.warning("the MCP server %s cannot be reached, its tools are left out: %s", self.config.name, error)
            self._is_told = True
            return str(error)
        except Exception as error:
            # catches everything, because a broken server must not end the run
            log.exception("connecting to the MCP server %s broke", self.config.name)
            self._failed()
            return f"it failed ({type(error).__name__})"
        self._connection, self._is_suspect, self._is_told = connection, False, False
        if self._watching is not None:
            self._watching.cancel()
        self._watching = spawn(self._watch(connection), name=f"mcp {self.config.name} changes")
        log.info("the MCP server %s is connected and offers %d tools", self.config.name, len(self.offers))
        return connection

    def _failed(self) -> None:
        """Schedules the next attempt: immediately after the first failure, then with exponential backoff."""
        self._failures += 1
        self._next_attempt_at = asyncio.get_running_loop().time()
        if self._failures > 1:
            first = self.backoff_seconds
            self._next_attempt_at += backoff_seconds(self._failures - 1, first=first, most=BACKOFF_SECONDS_MAX)

    async def _take(self, listed: "Sequence[types.Tool]") -> None:
        self.offers, _left_out = await select_usable_tools(self.config, listed)
        self.tools_needing_approval |= {offer.name for offer in self.offers if offer.needs_approval}
        self._read_at = asyncio.get_running_loop().time()

    async def _watch(self, connection: "Connection") -> None:
        """Refreshes the tool list whenever the server announces a change, at most once a second."""
        while connection.is_open:
            await connection.tools_changed.wait()
            self._read_beside()
            await asyncio.sleep(1)

    def _read_beside(self) -> None:
        if self._connection is not None and self._reading is None:
            self._reading = spawn(self._read(self._connection), name=f"mcp {self.config.name} tools")

    async def _read(self, connection: "Connection") -> None:
        try:
            await self._take(await connection.tools())
        except self._sdk.ServerUnreachable as error:
            log.info("the tools of the MCP server %s stay as they were: %s", self.config.name, error)
        finally:
            self._reading = None

    async def close(self) -> None:
        """Closes the connection. Later calls fail."""
        self._is_closed = True
        tasks = (self._opening, self._reading, self._watching, *self._retiring)
        await cancel(*(task for task in tasks if task is not None))
        if self._connection is not None:
            await self._connection.close()


WAIT_SECONDS = 3.0
"""How long a run waits for servers that are still connecting. They go on connecting in the background."""

FIRST_WAIT_SECONDS = 20.0
"""How long runs wait for a server after it is first wanted, because `npx` and `uvx` may have to download it."""

CONNECT_GRACE_SECONDS = 60.0
"""Extra time in a tool's time limit, for connecting before the call."""


class McpServers:
    """The configured servers. Construction does no I/O. A server is started when its tools are first needed.

    Servers over stdio see only PATH, HOME and LANG of `host_environment`."""

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        *,
        host_environment: Mapping[str, str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        first_wait_seconds: float = FIRST_WAIT_SECONDS,
        backoff_seconds: float = 1.0,
        authorize: "Authorize | None" = None,
    ) -> None:
        self.configs = {config.name: config for config in configs}
        self._links = tuple(
            ReconnectingServer(config, host_environment or {}, backoff_seconds, authorize) for config in configs
        )
        self._wait_seconds = wait_seconds
        self._first_wait_seconds = first_wait_seconds
        self._gathering: dict[str, asyncio.Task[tuple[ListedTool, ...]]] = {}

    def connect_all(self) -> None:
        """Starts connecting to every server and returns immediately."""
        for link in self._links:
            self._gather(link)

    def reconnect(self, name: str) -> None:
        """Connects to a server again, after a person has authorized the connection."""
        for link in self._links:
            if link.config.name == name:
                link.reopen()

    async def tools(self, enabled: frozenset[str] | None = None) -> tuple[Tool[Any], ...]:
        """Returns the tools of the servers that are reachable now.

        `enabled` holds names of servers and globs of tool names as the model sees them. None enables all tools. A
        server that fails or is slow is left out and logged once, and never raises. Tools that may change data ask for
        approval."""
        wanted = [link for link in self._links if _is_wanted(link.config.name, enabled)]
        tasks = [self._gather(link) for link in wanted]
        waiting = list[Awaitable[object]]()
        for link, task in zip(wanted, tasks, strict=True):
            assert link.first_wanted_at is not None  # noqa: S101 - _gather has set it
            age = asyncio.get_running_loop().time() - link.first_wanted_at
            seconds = self._first_wait_seconds - age if link.absence == STARTING else 0.0
            waiting.append(asyncio.wait([task], timeout=max(self._wait_seconds, seconds)))
        await asyncio.gather(*waiting)
        found: list[Tool[Any]] = []
        for link, task in zip(wanted, tasks, strict=True):
            if not task.done():
                link.absence = STARTING
                log.info("the MCP server %s is not ready; this run goes without it", link.config.name)
                continue
            if not task.cancelled() and task.exception() is None:
                for offer in task.result():
                    if enabled is None or offer.server in enabled or matches_any(offer.name, tuple(enabled)):
                        tool = _tool(link, offer)
                        asks = self.needs_approval(offer.name)
                        found.append(replace(tool, needs_approval=tool.title) if asks else tool)
        return tuple(found)

    def missing_servers(self, enabled: frozenset[str] | None = None) -> Mapping[str, str]:
        """Returns the enabled servers whose tools were missing in the last result of `tools`, each with the reason. The
        reasons contain no secrets."""
        return {
            link.config.name: redact(link.absence, secret_values(link.config))
            for link in self._links
            if link.absence and _is_wanted(link.config.name, enabled)
        }

    def instructions(self, enabled: frozenset[str] | None = None) -> Mapping[str, str]:
        """Returns the instructions of the enabled and connected servers for the use of their tools, without secrets."""
        said = {
            link.config.name: redact(link.instructions, secret_values(link.config))
            for link in self._links
            if link.offers and _is_wanted(link.config.name, enabled)
        }
        return {name: text for name, text in said.items() if text}

    def needs_approval(self, tool_name: str) -> bool:
        """Returns whether a person must approve a call of this tool. False for tools of our own.

        A tool that its server no longer lists needs approval if any tool of that server does."""
        for link in self._links:
            if tool_name.startswith(tool_name_prefix(link.config.name)):
                is_listed = any(offer.name == tool_name for offer in link.offers)
                unlisted = not is_listed and bool(link.config.needs_approval)
                return unlisted or tool_name in link.tools_needing_approval
        return False

    def _gather(self, link: ReconnectingServer) -> asyncio.Task[tuple[ListedTool, ...]]:
        name = link.config.name
        if link.first_wanted_at is None:
            link.first_wanted_at = asyncio.get_running_loop().time()
        task = self._gathering.get(name)
        if task is None:
            task = spawn(link.refresh_tools(), name=f"mcp {name} tools")
            self._gathering[name] = task
            task.add_done_callback(lambda _task: self._gathering.pop(name, None))
        return task

    async def close(self) -> None:
        """Disconnects from every server and ends the processes of servers over stdio."""
        await cancel(*self._gathering.values())
        await asyncio.gather(*(link.close() for link in self._links))


def _is_wanted(server: str, enabled: frozenset[str] | None) -> bool:
    """Returns whether any tool of the server can be enabled. A server without enabled tools is never started."""
    if enabled is None:
        return True
    start = tool_name_prefix(server)
    return any(
        pattern == server
        or pattern.startswith(start)
        or ("*" in pattern and fnmatch.fnmatchcase(start, f"{pattern.split('*')[0]}*"))
        for pattern in enabled
    )


def _tool(link: ReconnectingServer, offer: ListedTool) -> Tool[McpArguments]:
    return Tool(
        name=offer.name,
        effect="reads" if offer.is_read_only else "acts",
        reach=lambda params: reach_of_call(link.config, params.with_server_names(), is_read_only=offer.is_read_only),
        subject=f"mcp/{offer.server}",
        params=offer.params,
        description=offer.params.__doc__ or "",
        described_by=None if link.config.trusted else ("server", offer.server),
        run=partial(_run, link, offer),
        title=lambda _params: f"Using {offer.tool} of {offer.server}",
        timeout_seconds=longest_call_seconds(link.config) + link.config.connect_timeout_seconds + CONNECT_GRACE_SECONDS,
    )


async def _run(link: ReconnectingServer, offer: ListedTool, params: McpArguments, context: ToolContext) -> ToolOutput:
    """Runs the call and redacts the server's secrets from its answer, because error messages often repeat them."""
    secrets = secret_values(link.config)
    try:
        output = await link.call(offer.tool, params.with_server_names(), context)
    except ToolError as error:
        raise ToolError(redact(str(error), secrets)) from None
    question = output.reply and replace(output.reply, text=redact(output.reply.text, secrets))
    return replace(output, output=redact(str(output.output), secrets), reply=question)
