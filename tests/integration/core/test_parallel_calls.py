"""Calls of one turn beside each other, measured against the same calls one after the other."""

import asyncio
import time
from dataclasses import replace

from core.loop.run_context import LoopPolicy
from core.run.execute import execute
from core.tools.tool import Strategy, ToolContext, ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import EchoParams, World

CALLS = 6
CALL_SECONDS = 0.25


async def slow(params: EchoParams, context: ToolContext) -> str:
    await asyncio.sleep(CALL_SECONDS)
    return params.text


async def seconds(world: World, strategy: Strategy) -> float:
    tools = dict(world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], run=slow)
    world.with_deps(toolbox=ToolSet(tools), policy=LoopPolicy(strategy=strategy))
    world.model.turns = [calls(*[("echo", '{"text": "a"}')] * CALLS), text("done")]
    run_id = await world.say("go")
    begun = time.monotonic()
    await execute(run_id, world.deps)
    return time.monotonic() - begun


async def test_slow_reads_together_take_less_than_half_the_time(world: World) -> None:
    sequential = await seconds(world, "sequential")
    ordered = await seconds(world, "ordered")
    assert sequential >= CALLS * CALL_SECONDS
    assert ordered < sequential / 2
