"""The way to one MCP server over the life of the program: connected when needed, again after a loss, with patience."""

import asyncio
import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.domain.errors import ToolError
from core.domain.messages import JsonObject
from core.mcp.offers import Offer, offers_of
from core.mcp.settings import McpServerConfig
from core.tasks import cancel, spawn
from core.tools.tool import ToolContext, ToolOutput

if TYPE_CHECKING:  # the SDK takes a second to import: not before a server is wanted
    from core.mcp.connection import Connection

log = logging.getLogger(__name__)

BACKOFF_SECONDS_MAX = 60.0
PATIENCE_SECONDS = 5.0
"""How long a call waits for the next attempt to connect before it is answered that there is no connection."""

LIST_AGE_SECONDS_MAX = 300.0
"""A list of tools older than this is read again beside the runs: not every server tells of changes."""

PROBE_SECONDS = 5.0


@dataclass(slots=True)
class ServerLink:
    """One server. `offers` are its tools as last read; empty while it was never reached.

    `needing` are the names of the tools that need approval: once one does it stays so, whatever the server says later.
    """

    config: McpServerConfig
    host_environment: Mapping[str, str]
    backoff_seconds: float = 1.0
    offers: tuple[Offer, ...] = ()
    needing: frozenset[str] = frozenset()
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

    async def ready(self) -> tuple[Offer, ...]:
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
            connection = await self._connected(patience_seconds=PATIENCE_SECONDS)
            if isinstance(connection, str):
                raise ToolError(
                    f"The MCP server {name} cannot be reached: {connection}. Go on without its tools, or try later."
                )
            try:
                result = await connection.call(tool, arguments)
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
            output = self._sdk.tool_output(result, server=name, tool=tool, context=context)
            assert isinstance(output, ToolOutput)  # noqa: S101 - the module is loaded by name
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
            self._sdk = await asyncio.to_thread(importlib.import_module, "core.mcp.sdk")
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
        self.offers = await offers_of(self.config, listed)
        self.needing |= {offer.name for offer in self.offers if offer.needs_approval}
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
