"""What people do while a run is under way, and what models do wrong: steering, stops, dying streams, limits."""

import asyncio
from functools import partial

from core.domain.errors import ModelRejected, ModelUnavailable
from core.domain.events import AgentEvent, RunFailed
from core.llm.retry import stream_with_retries
from core.loop.run_context import LoopPolicy
from core.ports import TextDelta, ToolCallDelta
from core.prompt.system_prompt import RunPrompt
from core.run.execute import execute
from tests.fakes.streamed_model import calls, ended, text
from tests.integration.core.conftest import World
from tests.support.waiting import until


def kinds(events: list[AgentEvent]) -> list[str]:
    return [event.kind for event in events]


async def test_a_message_during_the_run_is_taken_up_before_the_next_call(world: World) -> None:
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id, running = await world.begin("go")
    await world.bench.until_started("x")
    assert await world.say("and in blue") == run_id
    world.bench.gate("x").set()
    await running
    roles = [message["role"] for message in world.model.requests[1].messages]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "and in blue" in str(world.model.requests[1].messages[-1]["content"])


async def test_a_message_at_the_last_moment_keeps_the_run_going(world: World) -> None:
    late = asyncio.Event()
    world.model.turns = [[TextDelta(text="done"), late, ended()], text("with that too")]
    run_id, running = await world.begin("go")
    await until(lambda: world.model.requests)
    assert await world.say("one more thing") == run_id
    late.set()
    await running
    assert "one more thing" in str(world.model.requests[1].messages[-1]["content"])
    assert kinds(await world.events(run_id)).count("run_finished") == 1


async def say_before_the_end(world: World, words: str, run_id: str, late: asyncio.Event) -> None:
    """Says something while the model ends its answer."""
    await until(lambda: world.model.requests)
    assert await world.say(words) == run_id
    late.set()


async def test_an_answer_is_not_lost_if_a_message_comes_before_its_end(world: World) -> None:
    late = asyncio.Event()
    world.model.turns = [[TextDelta(text="It is 42."), late, ended()], text("And blue.")]
    run_id, running = await world.begin("how many?")
    await say_before_the_end(world, "and which colour?", run_id, late)
    await running
    assert await world.replies(run_id) == ["It is 42.", "And blue."]


async def test_an_answer_that_a_message_kept_back_survives_the_worker(world: World) -> None:
    late, never = asyncio.Event(), asyncio.Event()
    world.model.turns = [[TextDelta(text="It is 42."), late, ended()], [never]]
    run_id, running = await world.begin("how many?")
    await say_before_the_end(world, "and which colour?", run_id, late)
    await until(lambda: len(world.model.requests) >= 2)
    running.cancel()
    await asyncio.wait([running])
    world.model.turns = [text("And blue.")]
    await execute(run_id, world.deps)
    assert await world.replies(run_id) == ["It is 42.", "And blue."]


async def test_files_of_an_answer_that_a_message_kept_back_survive_the_worker(world: World) -> None:
    late, never = asyncio.Event(), asyncio.Event()
    *answer, end = calls(("complete", '{"attachments": "a.md"}'), said="It is 42.")
    echo = calls(("echo", '{"text": "blue?"}'))
    world.model.turns = [[*answer, late, end], echo, [never]]
    run_id, running = await world.begin("how many?")
    await say_before_the_end(world, "and which colour?", run_id, late)
    await until(lambda: len(world.model.requests) >= 3)
    running.cancel()
    await asyncio.wait([running])
    world.model.turns = [text("And blue.")]
    await execute(run_id, world.deps)
    assert await world.left(run_id) == [
        ("answer", {"text": "It is 42."}),
        ("file", {"path": "a.md"}),
        ("answer", {"text": "And blue."}),
    ]


async def test_a_question_that_a_message_overtook_is_posted_and_waits_for_nobody(world: World) -> None:
    late = asyncio.Event()
    *asked, end = calls(("ask", '{"text": "Which colour?", "options": ["red", "blue"]}'))
    world.model.turns = [[*asked, late, end], text("Blue it is.")]
    run_id, running = await world.begin("paint it")
    await say_before_the_end(world, "in blue, please", run_id, late)
    await running
    assert await world.replies(run_id) == ["Which colour?\n\n- red\n- blue", "Blue it is."]
    assert [run.status for run in await world.runs(run_id)] == ["completed"]


async def test_a_message_in_the_last_turn_is_answered_by_the_next_run(world: World) -> None:
    world.with_deps(policy=LoopPolicy(turns_max=1))
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("Nearly done.")]
    run_id, running = await world.begin("go", agent_id="research")
    await world.bench.until_started("x")
    assert await world.say("how far are you?") == run_id
    world.bench.gate("x").set()
    async with asyncio.timeout(60):
        await running
    limited, follower = await world.runs(run_id)
    assert (limited.status, limited.finish_reason) == ("completed", "max_iterations")
    assert (follower.status, follower.agent_id) == ("queued", "research")
    await execute(follower.run_id, world.deps)
    assert await world.replies(follower.run_id) == ["Nearly done."]


async def test_what_is_written_after_a_stop_is_answered_and_what_stood_before_is_not(world: World) -> None:
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("Here is the sum.")]
    run_id, running = await world.begin("go")
    await world.bench.until_started("x")
    assert await world.say("and delete the rest") == run_id
    assert await world.stops.request_stop(run_id)
    assert await world.say("please sum up the file instead") == run_id
    await world.signals.send(run_id)
    await running
    stopped, follower = await world.runs(run_id)
    assert (stopped.status, follower.status) == ("stopped", "queued")
    assert "and delete the rest" in str((await world.history(run_id))[-1].content)
    await execute(follower.run_id, world.deps)
    assert await world.replies(follower.run_id) == ["Here is the sum."]
    assert "sum up the file" in str(world.model.requests[-1].messages[-1]["content"])


async def test_a_stop_ends_a_queued_run_at_once_and_keeps_its_words(world: World) -> None:
    run_id = await world.say("delete everything")
    await world.stop(run_id)
    (stopped,) = await world.runs(run_id)
    assert (stopped.status, stopped.finish_reason) == ("stopped", "stopped")
    assert (await world.read_end(run_id)).message == "Stopped before it began."
    world.model.turns = [text("Here is the sum.")]
    follower = await world.run("please sum up the file instead")
    assert follower != run_id
    said = [str(one["content"]) for one in world.model.requests[0].messages[1:]]
    assert ["delete everything" in said[0], "sum up" in said[2]] == [True, True]
    assert "ended" in said[1]


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


async def test_a_stopped_thread_goes_on_with_the_next_message(world: World) -> None:
    world.model.turns = [calls(("wait", '{"text": "x"}')), text("fine")]
    run_id, running = await world.begin("go")
    await world.bench.until_started("x")
    await world.stop(run_id)
    await running
    assert await world.run("go on") != run_id
    assert world.model.turns == []


async def test_a_stream_that_dies_starts_over_and_says_nothing_twice(world: World) -> None:
    world.model.turns = [[TextDelta(text="Hel"), ModelUnavailable("away")], text("Hello.")]
    world.with_deps(ask_model=partial(stream_with_retries, world.model, scale_seconds=0.01))
    run_id = await world.run("hi")
    history = await world.history(run_id)
    assert history[-1].content["content"] == "Hello."
    assert kinds(await world.events(run_id)).count("response_started") == 2


async def test_a_model_that_was_given_up_is_not_asked_anew(world: World) -> None:
    world.model.turns = [[ModelUnavailable("It is away.")]]
    last = (await world.events(await world.run("hi")))[-1]
    assert isinstance(last, RunFailed)
    assert last.public_message == "It is away."


async def test_an_empty_answer_is_asked_for_again_and_then_told(world: World) -> None:
    world.model.turns = [text(""), text(" "), text("")]
    run_id = await world.run("hi")
    last = (await world.events(run_id))[-1]
    assert isinstance(last, RunFailed)
    assert "empty answer" in last.public_message


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


async def test_an_error_that_will_not_pass_is_told_once(world: World) -> None:
    world.model.turns = [[ModelRejected("The model's key was refused.", detail="401 sk-secret")]]
    run_id = await world.run("hi")
    events = await world.events(run_id)
    failed = [event for event in events if isinstance(event, RunFailed)]
    assert [one.public_message for one in failed] == ["The model's key was refused."]
    assert (await world.read_run(run_id)).status == "failed"


async def test_a_run_that_breaks_before_it_reads_leaves_no_chain_of_runs(world: World) -> None:
    def broken(*_: object) -> RunPrompt:
        raise RuntimeError("no prompt today")

    world.with_deps(prompt=broken)
    run_id = await world.run("go")
    run = await world.read_run(run_id)
    assert run.status == "failed"
    assert [one.run_id for one in await world.deps.stores.conversations.runs(run.thread_id)] == [run_id]
    history = await world.history(run_id)
    assert "go" in str(history[0].content)


async def test_a_run_that_fails_later_still_delivers_the_answer_it_had(world: World) -> None:
    late = asyncio.Event()
    world.model.turns = [[TextDelta(text="It is 42."), late, ended()], [ModelRejected("No.")]]
    run_id, running = await world.begin("how many?")
    await say_before_the_end(world, "and which colour?", run_id, late)
    await running
    assert isinstance((await world.events(run_id))[-1], RunFailed)
    delivered = await world.database.read(lambda c: c.exec_driver_sql("SELECT slot, body FROM delivery").all())
    assert [(slot, "It is 42." in body) for slot, body in delivered] == [("answer", True)]
