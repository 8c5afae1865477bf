"""Tools that never end, or end in ways of their own, cost their own call and nothing else."""

import asyncio
from dataclasses import replace

import pytest

from core.domain.events import RunFinished, ToolFinished
from core.tools.tool import ToolContext, ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import EchoParams, World


async def hang(params: EchoParams, context: ToolContext) -> str:
    await asyncio.Event().wait()
    return "never"


async def give_up(params: EchoParams, context: ToolContext) -> str:
    raise asyncio.CancelledError("of its own")


async def cancel_a_part(params: EchoParams, context: ToolContext) -> str:
    part = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(part.cancel)
    await part
    return "never"


async def time_out(params: EchoParams, context: ToolContext) -> str:
    raise TimeoutError


async def break_in_a_group(params: EchoParams, context: ToolContext) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(give_up(params, context))
        raise RuntimeError(params.text)


@pytest.mark.parametrize("run", [hang, give_up, cancel_a_part, time_out, break_in_a_group])
@pytest.mark.parametrize("is_first", [True, False])
async def test_the_call_is_an_error_and_the_run_goes_on(world: World, run, is_first: bool) -> None:
    tools = dict(world.bench.toolbox().tools)
    tools["wild"] = replace(tools["echo"], name="wild", run=run, timeout_seconds=0.2)
    both = [("wild", '{"text": "x"}'), ("echo", '{"text": "ok"}')]
    world.with_deps(toolbox=ToolSet(tools)).model.turns = [calls(*(both if is_first else reversed(both))), text("done")]
    async with asyncio.timeout(30):
        run_id = await world.run("go")
    events = await world.events(run_id)
    outcomes = {one.name: one.outcome for one in events if isinstance(one, ToolFinished)}
    assert outcomes == {"wild": "error", "echo": "completed"}
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.status == "completed"
