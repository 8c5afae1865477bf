"""What a run does from the message to the terminal event, told by its stored events and messages."""

import asyncio
from dataclasses import replace

import pytest

from core.dialects.xml import XmlDialect
from core.domain.events import ToolFinished
from core.loop.calls import NOT_THE_END
from core.loop.run_context import LoopPolicy
from core.ports import TextDelta, ToolCallDelta
from core.tools.tool import ToolContext, ToolSet
from tests.fakes.streamed_model import calls, ended, invokes, text
from tests.integration.core.conftest import EchoParams, World
from tests.support.narrow import require
from tests.support.waiting import until


async def test_an_answer_without_calls_ends_the_run(world: World) -> None:
    world.model.turns = [text("Hel", "lo.")]
    run_id = await world.run("hi")
    events = await world.events(run_id)
    assert [event.kind for event in events] == [
        "message_added",
        "turn_started",
        "response_started",
        "message_added",
        "finish_reached",
        "turn_finished",
        "run_finished",
    ]
    assert (await world.read_reply(run_id)).text == "Hello."
    run = await world.read_run(run_id)
    assert (run.status, run.finish_reason) == ("completed", "stop")


async def test_a_call_starts_while_the_model_still_streams(world: World) -> None:
    still = asyncio.Event()
    world.model.turns = [
        [
            ToolCallDelta(index=0, call_id="c0", name="wait", arguments='{"text": "x"}'),
            ToolCallDelta(index=1, call_id="c1", name="echo", arguments='{"text": "y"}'),
            still,
            ended("tool_calls"),
        ],
        text("done"),
    ]
    _run_id, running = await world.begin("go")
    await world.bench.until_started("x")
    world.bench.gate("x").set()
    still.set()
    await running
    assert world.bench.said == ["x", "y"]


async def test_parallel_results_are_stored_in_call_order(world: World) -> None:
    world.model.turns = [calls(("wait", '{"text": "slow"}'), ("echo", '{"text": "fast"}')), text("done")]
    run_id, running = await world.begin("go")
    await until(lambda: "fast" in world.bench.said)
    world.bench.gate("slow").set()
    await running
    finished = [e for e in await world.events(run_id) if isinstance(e, ToolFinished)]
    assert [one.index for one in finished] == [0, 1]
    assert [m["tool_call_id"] for m in world.model.requests[1].messages[-2:]] == ["call_0", "call_1"]


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "part"),
    [
        ("nonsense", "{}", "error", "There is no tool named 'nonsense'"),
        ("echo", "{}", "error", "text: Field required"),
        ("echo", "[not json", "error", ""),
        ("explode", '{"text": "bang"}', "error", "explode broke (RuntimeError)"),
    ],
)
async def test_a_call_that_fails_is_told_to_the_model_alone(
    world: World, name: str, arguments: str, outcome: str, part: str
) -> None:
    world.model.turns = [calls((name, arguments), ("echo", '{"text": "ok"}')), text("done")]
    run_id = await world.run("go")
    finished = [e for e in await world.events(run_id) if isinstance(e, ToolFinished)]
    assert [one.outcome for one in finished] == [outcome, "completed"]
    assert part in finished[0].message
    assert "Traceback" not in finished[0].message
    assert (await world.read_run(run_id)).status == "completed"


async def test_nothing_after_an_ask_runs_and_the_thread_waits(world: World) -> None:
    world.model.turns = [
        calls(
            ("echo", '{"text": "before"}'),
            ("ask", '{"text": "Which?", "options": ["A", "B"]}'),
            ("echo", '{"text": "after"}'),
        )
    ]
    run_id = await world.run("go")
    assert world.bench.said == ["before"]
    snapshot = require(await world.deps.stores.conversations.find(world.address))
    assert snapshot.thread.state == "waiting"
    assert require(snapshot.open_ask).options == ("A", "B")
    history = await world.history(run_id)
    assert "Not run: ask came before it" in str(history[-1].content)
    finished = [e for e in await world.events(run_id) if isinstance(e, ToolFinished)]
    assert [one.terminates for one in finished] == [False, True, False]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(("explode", '{"text": "the price was not changed"}'), id="failed"),
        pytest.param(("echo", "{}"), id="wrong arguments"),
        pytest.param(("no_such_tool", "{}"), id="unknown tool"),
    ],
)
@pytest.mark.parametrize("end", ["complete", "ask"])
async def test_a_call_that_fails_beside_the_end_goes_back_to_the_model(
    world: World, before: tuple[str, str], end: str
) -> None:
    world.model.turns = [calls(before, (end, '{"text": "Done: it is 120."}')), text("It failed.")]
    run_id = await world.run("go")
    assert await world.replies(run_id) == ["It failed."]
    results = [one for one in await world.history(run_id) if one.type == "tool"]
    assert NOT_THE_END in str(results[-1].content)


async def test_the_reply_to_an_ask_starts_a_new_run_on_the_same_history(world: World) -> None:
    world.model.turns = [calls(("ask", '{"text": "Which?"}')), text("done")]
    first = await world.run("go")
    second = await world.run("the red one")
    assert first != second
    sent = world.model.requests[1].messages
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert "the red one" in str(sent[-1]["content"])


async def test_usage_is_added_up(world: World) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}')), text("done")]
    run_id = await world.run("go")
    usage = await world.deps.stores.conversations.usage(run_id=run_id)
    assert (usage.input_tokens, usage.output_tokens) == (20, 10)


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
    assert (await world.read_end(run_id)).status == "completed"


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


async def test_a_later_run_knows_what_was_said_before(world: World) -> None:
    world.model.turns = [text("The code is 4711."), text("4711.")]
    first = await world.run("make a code")
    second = await world.run("which code was it?")
    assert [message["role"] for message in world.model.requests[1].messages] == ["system", "user", "assistant", "user"]
    assert "4711" in str(world.model.requests[1].messages[2]["content"])
    messages = await world.messages(second)
    assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
    assert {message.run_id for message in messages} == {first, second}


async def test_a_thread_may_change_its_dialect(world: World) -> None:
    world.model.turns = [calls(("echo", '{"text": "a"}')), text("one")]
    await world.run("go")
    xml = XmlDialect()
    world.with_deps(dialect=xml).model.turns = [text(invokes(("echo", {"text": "b"}))), text("two")]
    await world.run("go on")
    assert world.bench.said == ["a", "b"]
    assert world.model.requests[0].tools
    assert world.model.requests[2].tools == ()
    assert "<function_calls>" in str(world.model.requests[2].messages[0]["content"])
