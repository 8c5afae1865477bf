"""Real MCP servers on this machine, and their tools called in the way a run calls them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from pydantic import JsonValue

from core.domain.errors import SandboxUnavailable, ToolError
from core.domain.messages import ToolCall
from core.loop.calls import CallOutcome, execute_call, failed_outcome
from core.mcp.servers import McpServers
from core.mcp.settings import McpServerConfig
from core.ports import Sandbox
from core.tools.tool import ToolContext, ToolSet, prepare_call
from tests.fakes.preloaded import command_of
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.paths import FAKES


async def no_sandbox() -> Sandbox:
    raise SandboxUnavailable("an MCP tool needs no sandbox")


CONTEXT = ToolContext(thread_id="thread", run_id="run", sandbox=no_sandbox)


def context_in(sandboxes: MemorySandboxes) -> ToolContext:
    """A call's context with the machine `thread` of these sandboxes."""

    async def opened() -> Sandbox:
        return await sandboxes.open("thread", fence=1)

    return replace(CONTEXT, sandbox=opened)


def stdio(
    name: str = "fake",
    program: str = "mcp_server.py",
    *,
    arguments: tuple[str, ...] = (),
    is_forked: bool = True,
    **more: object,
) -> McpServerConfig:
    """A server of tests/fakes as a child process.

    `is_forked=False` is for fakes that do not import the SDK, and for tests of the process itself or its environment.
    """
    path = str(FAKES / program)
    start = command_of(path, *arguments) if is_forked else [sys.executable, path, *arguments]
    fields = {
        "name": name,
        "transport": "stdio",
        "command": start[0],
        "args": tuple(start[1:]),
        "call_timeout_seconds": 30,
        **more,
    }
    return McpServerConfig.model_validate(fields)


@dataclass
class Guest:
    """The servers of one test."""

    servers: McpServers
    toolbox: ToolSet = field(default_factory=lambda: ToolSet({}))

    async def look(self, enabled: frozenset[str] | None = None) -> list[str]:
        """Takes the tools as a run would; answers their names."""
        self.toolbox = ToolSet({tool.name: tool for tool in await self.servers.tools(enabled)})
        return list(self.toolbox.tools)

    async def ready(self) -> "Guest":
        """Takes the tools, and answers the guest."""
        await self.look()
        return self

    async def call(self, tool: str, **arguments: JsonValue) -> CallOutcome:
        """Calls `mcp_fake_<tool>`, or the tool by its whole name."""
        name = tool if tool.startswith("mcp_") else f"mcp_fake_{tool}"
        call = ToolCall(call_id="c1", name=name, arguments=arguments)
        try:
            prepared = prepare_call(name, arguments, self.toolbox)
        except ToolError as error:
            return failed_outcome(call, str(error))
        return await execute_call(call, prepared, CONTEXT)

    async def output(self, tool: str, **arguments: JsonValue) -> str:
        """What a call that succeeds answers."""
        outcome = await self.call(tool, **arguments)
        assert outcome.outcome == "completed", outcome.result
        return str(outcome.result["output"])

    async def error(self, tool: str, **arguments: JsonValue) -> str:
        """What the model is told of a call that does not succeed."""
        outcome = await self.call(tool, **arguments)
        assert outcome.outcome != "completed", outcome.result
        return str(outcome.result["error"])


MakeGuest = Callable[..., "Guest"]


@pytest.fixture
async def guest_of() -> AsyncIterator[MakeGuest]:
    """Makes the servers of the configurations; all are left at the end."""
    made: list[McpServers] = []

    def make(*configs: McpServerConfig, **options: object) -> Guest:
        chosen: dict[str, object] = {"wait_seconds": 30, "backoff_seconds": 0.01, **options}
        made.append(McpServers(configs, **chosen))
        return Guest(made[-1])

    yield make
    for servers in made:
        await servers.close()


@pytest.fixture
async def guest(guest_of: MakeGuest) -> Guest:
    """One server over stdio, its tools taken."""
    return await guest_of(stdio()).ready()


@dataclass
class HttpFake:
    """tests/fakes/mcp_server.py as an HTTP server in a process of its own."""

    kind: str
    port: int = 0
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{'mcp' if self.kind == 'http' else 'sse'}"

    def config(self, **more: object) -> McpServerConfig:
        fields = {"name": "fake", "transport": self.kind, "url": self.url, **more}
        return McpServerConfig.model_validate(fields)

    async def start(self) -> None:
        """On the port it had before, if it had one."""
        self.process = await asyncio.create_subprocess_exec(
            *command_of(str(FAKES / "mcp_server.py"), self.kind, str(self.port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.port = int(await self.process.stdout.readline())

    async def stop(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()


@asynccontextmanager
async def http_fake(kind: str) -> AsyncIterator[HttpFake]:
    fake = HttpFake(kind)
    await fake.start()
    try:
        yield fake
    finally:
        await fake.stop()


@pytest.fixture(params=["http", "sse"])
async def web(request: pytest.FixtureRequest) -> AsyncIterator[HttpFake]:
    async with http_fake(request.param) as fake:
        yield fake
