"""The tools of all MCP servers, for any run that wants them."""

import asyncio
import fnmatch
import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core.domain.errors import ToolError
from core.domain.messages import JsonObject
from core.mcp.arguments import McpArguments
from core.mcp.settings import McpServerConfig, redact, secret_values, tool_name_prefix
from core.mcp.tools import McpTool, matches_any, usable_tools
from core.tasks import cancel, spawn
from core.tools.tool import Tool, ToolContext, ToolOutput

log = logging.getLogger(__name__)

if TYPE_CHECKING:  # the SDK takes a second to import: not before a server is wanted
    from core.mcp.connection import Connection

BACKOFF_SECONDS_MAX = 60.0
RECONNECT_WAIT_SECONDS = 5.0
"""How long a call waits for the next attempt to connect before it is answered that there is no connection."""

LIST_AGE_SECONDS_MAX = 300.0
"""A list of tools older than this is read again beside the runs: not every server tells of changes."""

PROBE_SECONDS = 5.0


@dataclass(slots=True)
class ReconnectingServer:
    """One server. `offers` are its tools as last read; empty while it was never reached.

    `needing` are the names of the tools that need approval: once one does it stays so, whatever the server says later.
    """

    config: McpServerConfig
    host_environment: Mapping[str, str]
    backoff_seconds: float = 1.0
    offers: tuple[McpTool, ...] = ()
    tools_needing_approval: frozenset[str] = frozenset()
    _connection: "Connection | None" = None
    _opening: "asyncio.Task[Connection | str] | None" = None
    _reading: asyncio.Task[None] | None = None
    _watching: asyncio.Task[None] | None = None
    _failures: int = 0
    _next_attempt_at: float = 0.0
    _read_at: float = 0.0
    _is_suspect: bool = False
    _is_told: bool = False
    _is_closed: bool = False
    _sdk: Any = field(default=None, repr=False)

    async def ready(self) -> tuple[McpTool, ...]:
        """The server's tools, after connecting and reading them where that is due; empty where it cannot be had."""
        if isinstance(await self._connected(patience_seconds=0), str):
            return ()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        elif asyncio.get_running_loop().time() - self._read_at > LIST_AGE_SECONDS_MAX:
            self._read_beside()
        return self.offers

    async def call(self, tool: str, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        """Raises ToolError. Asked again, on a new connection, only where the first certainly did nothing."""
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
                raise self._lost(connection, str(error)) from error
            except self._sdk.CallRefused as error:
                raise ToolError(f"The MCP server {name} refused the call: {error}") from error
            self._failures = 0
            return output
        raise AssertionError("unreachable")

    def _lost(self, connection: "Connection", why: str) -> ToolError:
        log.warning("a call to the MCP server %s was lost: %s", self.config.name, why)
        if connection.is_open:
            self._is_suspect = True
        else:
            self._failed()
        return ToolError(
            f"The MCP server {self.config.name} gave no result: {why}. It may or may not have done what was asked: "
            "look before you ask again."
        )

    async def _connected(self, *, patience_seconds: float) -> "Connection | str":
        """A connection that was open a moment ago, or why there is none."""
        if self._is_closed:
            return "this program is about to end"
        if self._connection is not None and self._is_suspect:
            await self._probe(self._connection)
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._opening is None:
            wait = self._next_attempt_at - asyncio.get_running_loop().time()
            if wait > patience_seconds:
                return (
                    f"it failed {self._failures} times in a row and is tried again in {wait:.0f} s"
                )
            self._opening = spawn(
                self._open(max(0.0, wait)), name=f"mcp {self.config.name} opening"
            )
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        await asyncio.wait([opening])
        return "the attempt was given up" if opening.cancelled() else opening.result()

    def _opened(self, _task: object) -> None:
        self._opening = None

    async def _open(self, wait_seconds: float) -> "Connection | str":
        await asyncio.sleep(wait_seconds)
        if self._sdk is None:
            self._sdk = await asyncio.to_thread(importlib.import_module, "core.mcp.connection")
        if self._connection is not None:
            await self._connection.close()
            self._connection = None
        connection: Connection = self._sdk.Connection(self.config)
        try:
            await connection.open(self.host_environment)
            await self._read(connection)
        except self._sdk.ServerUnreachable as error:
            await connection.close()
            self._failed()
            self._tell_once(str(error))
            return str(error)
        except Exception as error:
            # an edge: a server must not cost a run
            log.exception("connecting to the MCP server %s broke", self.config.name)
            await connection.close()
            self._failed()
            return f"it failed ({type(error).__name__})"
        except asyncio.CancelledError:
            await connection.close()
            raise
        self._connection, self._is_suspect, self._is_told = connection, False, False
        if self._watching is not None:
            self._watching.cancel()
        self._watching = spawn(self._watch(connection), name=f"mcp {self.config.name} changes")
        log.info(
            "the MCP server %s is connected and offers %d tools", self.config.name, len(self.offers)
        )
        return connection

    def _tell_once(self, why: str) -> None:
        """One line for the operator, until it was reached again."""
        if not self._is_told:
            log.warning(
                "the MCP server %s cannot be reached, its tools are left out: %s",
                self.config.name,
                why,
            )
        self._is_told = True

    def _failed(self) -> None:
        """The first attempt after a loss comes at once, the others later and later."""
        self._failures += 1
        delay = (
            0.0 if self._failures == 1 else self.backoff_seconds * 2 ** min(self._failures - 2, 10)
        )
        now = asyncio.get_running_loop().time()
        self._next_attempt_at = now + min(delay, BACKOFF_SECONDS_MAX)

    async def _read(self, connection: "Connection") -> None:
        listed = await connection.tools()
        self.offers = await usable_tools(self.config, listed)
        self.tools_needing_approval |= {offer.name for offer in self.offers if offer.needs_approval}
        self._read_at = asyncio.get_running_loop().time()

    async def _probe(self, connection: "Connection") -> None:
        """After a call without an answer: is the server still there? One that is not is started anew."""
        self._is_suspect = False
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._read(connection)
        except (TimeoutError, self._sdk.ServerUnreachable):
            log.warning("the MCP server %s no longer answers and is left", self.config.name)
            self._failed()
            if self._connection is connection:
                self._connection = None
            await connection.close()

    async def _watch(self, connection: "Connection") -> None:
        """Reads the tools again whenever the server says that they changed, at most once a second."""
        while connection.is_open:
            await connection.tools_changed.wait()
            self._read_beside()
            await asyncio.sleep(1)

    def _read_beside(self) -> None:
        connection = self._connection
        if connection is None or self._reading is not None:
            return
        self._reading = spawn(self._read_again(connection), name=f"mcp {self.config.name} tools")
        self._reading.add_done_callback(self._was_read)

    def _was_read(self, _task: object) -> None:
        self._reading = None

    async def _read_again(self, connection: "Connection") -> None:
        try:
            await self._read(connection)
        except self._sdk.ServerUnreachable as error:
            log.info(
                "the tools of the MCP server %s stay as they were: %s", self.config.name, error
            )

    async def close(self) -> None:
        """Ends the connection; later calls are refused."""
        self._is_closed = True
        for task in (self._opening, self._reading, self._watching):
            if task is not None:
                await cancel(task)
        if self._connection is not None:
            await self._connection.close()


WAIT_SECONDS = 3.0
"""How long a run waits for servers that are not connected yet; they go on connecting beside it."""

CONNECT_GRACE_SECONDS = 60.0
"""Room in a tool's own limit for a connection that is made first."""


class McpServers:
    """The servers of the settings. Made without any I/O; a server is started when its tools are first wanted.

    `host_environment` is what servers over stdio may see of ours: only PATH, HOME and LANG are taken from it.
    """

    def __init__(
        self,
        configs: Sequence[McpServerConfig],
        *,
        host_environment: Mapping[str, str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        backoff_seconds: float = 1.0,
    ) -> None:
        self._links = tuple(
            ReconnectingServer(config, host_environment or {}, backoff_seconds)
            for config in configs
        )
        self._wait_seconds = wait_seconds
        self._gathering: dict[str, asyncio.Task[tuple[McpTool, ...]]] = {}

    def warm(self) -> None:
        """Starts to connect to every server and returns at once."""
        for link in self._links:
            self._gather(link)

    async def tools(self, enabled: frozenset[str] | None = None) -> tuple[Tool[Any], ...]:
        """The tools of the servers that can be had now. `enabled` None: all; else names of servers, or names of tools
        as the model sees them, in which * stands for anything.

        Never raises for a server: one that fails or is slow is left out, and told to the operator once.
        """
        wanted = [link for link in self._links if _is_wanted(link.config.name, enabled)]
        tasks = [self._gather(link) for link in wanted]
        if tasks:
            await asyncio.wait(tasks, timeout=self._wait_seconds)
        found: list[Tool[Any]] = []
        for link, task in zip(wanted, tasks, strict=True):
            if not task.done():
                log.info(
                    "the MCP server %s is not ready; this run goes without it", link.config.name
                )
                continue
            if not task.cancelled() and task.exception() is None:
                offers = task.result()
                found.extend(_tool(link, offer) for offer in offers if _is_enabled(offer, enabled))
        return tuple(found)

    def needs_approval(self, tool_name: str) -> bool:
        """Whether the settings want a person's word before this tool runs; no for a tool that is none of ours.

        A tool that its server no longer lists needs it too, where any of that server does.
        """
        for link in self._links:
            if tool_name.startswith(tool_name_prefix(link.config.name)):
                is_listed = any(offer.name == tool_name for offer in link.offers)
                unlisted = not is_listed and bool(link.config.needs_approval)
                return unlisted or tool_name in link.tools_needing_approval
        return False

    def _gather(self, link: ReconnectingServer) -> asyncio.Task[tuple[McpTool, ...]]:
        name = link.config.name
        task = self._gathering.get(name)
        if task is None:
            task = spawn(link.ready(), name=f"mcp {name} tools")
            self._gathering[name] = task
            task.add_done_callback(lambda _task: self._gathering.pop(name, None))
        return task

    async def close(self) -> None:
        """Leaves every server; no process of one over stdio remains."""
        for task in tuple(self._gathering.values()):
            await cancel(task)
        await asyncio.gather(*(link.close() for link in self._links))


def _is_wanted(server: str, enabled: frozenset[str] | None) -> bool:
    """Whether any tool of the server may be enabled: a server nobody wants is never started."""
    if enabled is None:
        return True
    start = tool_name_prefix(server)
    return any(
        pattern == server
        or pattern.startswith(start)
        or ("*" in pattern and fnmatch.fnmatchcase(start, f"{pattern.split('*')[0]}*"))
        for pattern in enabled
    )


def _is_enabled(offer: McpTool, enabled: frozenset[str] | None) -> bool:
    return enabled is None or offer.server in enabled or matches_any(offer.name, tuple(enabled))


def _tool(link: ReconnectingServer, offer: McpTool) -> Tool[McpArguments]:
    return Tool(
        name=offer.name,
        params=offer.params,
        run=partial(_run, link, offer),
        title=partial(_title, offer),
        timeout_seconds=link.config.call_timeout_seconds
        + link.config.connect_timeout_seconds
        + CONNECT_GRACE_SECONDS,
    )


def _title(offer: McpTool, _params: McpArguments) -> str:
    return f"{offer.server}: {offer.tool}"


async def _run(
    link: ReconnectingServer, offer: McpTool, params: McpArguments, context: ToolContext
) -> ToolOutput:
    """What the server was given in confidence is taken out of what it answers: its errors like to repeat it."""
    secrets = secret_values(link.config)
    try:
        output = await link.call(offer.tool, params.root, context)
    except ToolError as error:
        raise ToolError(redact(str(error), secrets)) from None
    return replace(output, output=redact(str(output.output), secrets))
