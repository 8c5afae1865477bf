"""Commands in the background of a real sandbox: they outlive their run, and what a cut-off run waited for ends."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from sandbox.unsafe_process import UnsafeProcessProvider
from tests.fakes.streamed_model import Played, calls, text
from tests.integration.core.conftest import World
from tests.support.sandboxes import reachable_folder
from tests.support.waiting import until

TOOLS = ("execute_command", "check_command_output", "create_file", "complete")


@pytest.fixture
async def provider(world: World) -> AsyncIterator[UnsafeProcessProvider]:
    async with reachable_folder() as folder:
        processes = UnsafeProcessProvider(folder)
        toolbox = ToolSet({name: all_tools()[name] for name in TOOLS})
        world.with_deps(sandboxes=processes, toolbox=toolbox)
        yield processes
        await processes.close()


def shell(command: str, session: str, timeout: int = 0) -> Played:
    arguments = {"command": command, "session_name": session, "timeout": timeout}
    return calls(("execute_command", json.dumps(arguments)))


def tails(world: World) -> list[str]:
    return [
        f"{one.messages[-1]['content']} {tail}"
        for one, tail in zip(world.model.requests, world.model.tails, strict=True)
    ]


async def test_a_server_outlives_the_run_that_started_it(world: World, provider: UnsafeProcessProvider) -> None:
    world.model.turns = [shell("exec sleep 1000", "server"), text("it serves")]
    run_id = await world.run("start a server")
    world.model.turns = [shell("true", "main", 20), text("ok"), shell("true", "main", 20), text("k")]
    await world.run("do something else")
    await world.run("and once more")
    run = await world.read_run(run_id)
    reader = await provider.open(run.thread_id, fence=0)
    assert (await reader.shell.check("server")).exit_code is None


async def test_a_message_ends_the_wait_for_a_command_and_is_read_next(
    world: World, provider: UnsafeProcessProvider
) -> None:
    check = calls(("check_command_output", '{"session_name": "build", "wait_seconds": 600}'))
    world.model.turns = [shell("exec sleep 1000", "build"), check, text("I see")]
    _run_id, running = await world.begin("build it")
    async with asyncio.timeout(60):
        await until(lambda: len(world.model.requests) >= 2)
        await world.say("how is it going?", message_ref="2")
        await running
    last = tails(world)[-1]
    assert "[session build, in /workspace: still running]" in last
    assert "how is it going?" in last
