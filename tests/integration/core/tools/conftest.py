"""Real sandboxes, and the tools called in them the way a run calls them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import JsonValue

from core.domain.errors import ToolError
from core.domain.messages import ToolCall
from core.loop.calls import CallOutcome, execute_call, failed_outcome
from core.ports import Sandbox
from core.tools.catalogue import build_tool_set
from core.tools.tool import ThreadLinks, ToolContext, prepare_call
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.support.sandboxes import content, local_jails, pieces, reachable_folder


@dataclass
class Bench:
    """A sandbox with the tools around it."""

    sandbox: Sandbox
    context: ToolContext

    async def call(self, name: str, /, **arguments: JsonValue) -> CallOutcome:
        """Prepares and executes the call; whatever is wrong with it is its outcome."""
        call = ToolCall(call_id="c1", name=name, arguments=arguments)
        try:
            prepared = prepare_call(name, arguments, build_tool_set())
        except ToolError as error:
            return failed_outcome(call, str(error))
        return await execute_call(call, prepared, self.context)

    async def output(self, name: str, /, **arguments: JsonValue) -> str:
        """What a call that succeeds answers."""
        outcome = await self.call(name, **arguments)
        assert outcome.outcome == "completed", outcome.result
        return str(outcome.result["output"])

    async def error(self, name: str, /, **arguments: JsonValue) -> str:
        """What a call that fails tells the model."""
        outcome = await self.call(name, **arguments)
        assert outcome.outcome != "completed", outcome.result
        assert outcome.result["output"] is None
        return str(outcome.result["error"])

    async def sessions(self) -> list[tuple[Any, ...]]:
        """Name, command and whether it runs, of each listed session."""
        listed: Any = (await self.call("list_commands")).result["output"]
        return sorted((one["session_name"], one["command"], one["is_running"]) for one in listed)

    async def put(self, path: str, whole: bytes) -> None:
        await self.sandbox.files.write(path, pieces(whole))

    async def get(self, path: str) -> bytes:
        return await content(self.sandbox, path)


@pytest.fixture(params=["local", "unsafe-process"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    if request.param == "local":
        async with local_jails() as jails:
            yield await jails.open("thread", fence=1)
    else:
        async with reachable_folder() as folder:
            processes = UnsafeProcessProvider(folder)
            yield await processes.open("thread", fence=1)
            await processes.close()


@pytest.fixture
def bench(sandbox: Sandbox) -> Bench:
    return bench_in(sandbox)


def bench_in(sandbox: Sandbox) -> Bench:
    async def opened() -> Sandbox:
        return sandbox

    context = ToolContext(
        thread_id="thread",
        run_id="run",
        sandbox=opened,
        links=ThreadLinks(preview_url=lambda path: f"https://agent.example/preview/{path}"),
    )
    return Bench(sandbox, context)
