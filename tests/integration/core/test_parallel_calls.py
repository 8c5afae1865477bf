"""Calls of one turn beside each other, measured against the same calls one after the other."""

import asyncio
import time
from dataclasses import replace

import pytest

from core.loop.run_context import LoopPolicy
from core.run.execute import execute
from core.tools.tool import ToolContext, ToolSet
from tests.fakes.played_model import calls, text
from tests.integration.core.conftest import EchoParams, World

CALLS = 6
CALL_SECONDS = 0.25


async def slow(params: EchoParams, context: ToolContext) -> str:
    await asyncio.sleep(CALL_SECONDS)
    return params.text


async def seconds(world: World, *, is_sequential: bool) -> float:
    tools = dict(world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], run=slow)
    world.with_engine(toolbox=ToolSet(tools), policy=LoopPolicy(is_sequential=is_sequential))
    world.model.turns = [calls(*[("echo", '{"text": "a"}')] * CALLS), text("done")]
    run_id = await world.say("go")
    begun = time.monotonic()
    await execute(run_id, world.engine)
    return time.monotonic() - begun


@pytest.mark.slow
async def test_slow_calls_in_parallel_take_less_than_half_the_time(world: World) -> None:
    sequential = await seconds(world, is_sequential=True)
    parallel = await seconds(world, is_sequential=False)
    assert sequential >= CALLS * CALL_SECONDS
    assert parallel < sequential / 2
