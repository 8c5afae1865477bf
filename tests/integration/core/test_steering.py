"""What people do while a run is under way, and what models do wrong: steering, stops, dying streams, limits."""

import asyncio

from core.loop.run_context import LoopPolicy
from core.ports import TextDelta, ToolCallDelta
from tests.fakes.streamed_model import calls, ended, text
from tests.integration.core.conftest import World
from tests.support.waiting import until


async def test_a_stop_ends_a_running_tool(world: World) -> None:
    world.model.turns = [calls(("wait", '{"text": "x"}'), said="Working.")]
    run_id, running = await world.begin("go")
    await world.bench.until_started("x")
    await world.stop(run_id)
    async with asyncio.timeout(30):
        await running
    run = await world.read_run(run_id)
    assert (run.status, run.finish_reason) == ("stopped", "stopped")
    history = await world.history(run_id)
    assert [message.type for message in history] == ["user", "assistant", "tool"]
    assert "Stopped by a person" in str(history[-1].content)


async def test_a_stop_keeps_the_text_of_the_stream_and_no_half_call(world: World) -> None:
    never = asyncio.Event()
    world.model.turns = [[TextDelta(text="I think"), ToolCallDelta(index=0, name="echo", arguments='{"te'), never]]
    run_id, running = await world.begin("go")
    await until(lambda: world.model.requests)
    await asyncio.sleep(0.05)
    await world.stop(run_id)
    await running
    history = await world.history(run_id)
    assert [message.type for message in history] == ["user", "assistant"]
    assert history[-1].content["content"] == "I think"
    assert not history[-1].content.get("tool_calls")


async def test_an_answer_that_a_filter_took_away_is_told_and_not_asked_for_again(world: World) -> None:
    world.model.turns = [[ended("content_filter")], text("never")]
    run = await world.read_run(await world.run("go"))
    assert run.status == "failed"
    assert "because of its content" in str(run.error)
    assert len(world.model.requests) == 1


async def test_an_answer_that_a_filter_cut_off_says_so_to_people_and_not_to_the_model(world: World) -> None:
    world.model.turns = [[TextDelta(text="It begins"), ended("content_filter")], text("Yes?")]
    run_id = await world.run("go")
    assert (await world.read_reply(run_id)).text.startswith("It begins\n\n(The content filter")
    await world.run("go on")
    said = [one["content"] for one in world.model.requests[-1].messages if one["role"] == "assistant"]
    assert said == ["It begins"]


async def test_a_cut_answer_is_continued_and_told_whole(world: World) -> None:
    world.model.turns = [text("one, ", finish="length"), text("two.")]
    run_id = await world.run("count")
    assert (await world.read_reply(run_id)).text == "one, two."


async def test_the_limit_of_turns_offers_to_continue(world: World) -> None:
    world.with_deps(policy=LoopPolicy(turns_max=2))
    world.model.turns = [calls(("echo", '{"text": "a"}')), calls(("echo", '{"text": "b"}'))]
    run_id = await world.run("go")
    last = await world.read_end(run_id)
    assert (last.finish_reason, last.can_continue) == ("max_iterations", True)
