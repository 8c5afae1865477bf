"""The loop, its turns and their tool calls, without a store, a process or a socket."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import BaseModel

from core.context.background_messages import FLOW_KEY
from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.errors import BudgetExceeded, ModelRejected, ToolError
from core.domain.events import RunFinished, TextStreamed, ToolFinished, TurnStarted
from core.loop.loop import turns_left
from core.loop.run_context import LoopPolicy
from core.tools.replies import ask, complete
from core.tools.tool import Strategy, Tool, ToolContext
from tests.fakes.memory_run import MemoryRun, in_sequence, user_message
from tests.fakes.streamed_model import StreamedModel, calls, ended, invokes, pieces, text
from tests.support.narrow import require


class Echo(BaseModel):
    """Returns the text."""

    text: str


async def run_echo(params: Echo, _context: ToolContext) -> str:
    if params.text == "fail":
        raise ToolError("It failed. Try another text.")
    return f"echo {params.text}"


echo = Tool(name="echo", effect="reads", params=Echo, run=run_echo, title=lambda params: f"echo {params.text}")


def finished(end: object) -> RunFinished:
    assert isinstance(end, RunFinished)
    return end


def tool_texts(run: MemoryRun) -> list[str]:
    return [str(message.content) for message in run.log.messages if message.type == "tool"]


async def test_an_answer_without_calls_ends_the_run() -> None:
    run = MemoryRun(StreamedModel([text("Hel", "lo.")]))
    end = finished(await run.start("hi"))
    assert end.reply is not None
    assert (end.status, end.finish_reason, end.reply.text) == ("completed", "stop", "Hello.")
    stored = [kind for kind in run.log.kinds() if not kind.endswith("_streamed")]
    assert stored == [
        "turn_started", "response_started", "message_added", "finish_reached", "turn_finished",
    ]  # fmt: skip


async def test_results_are_stored_in_call_order_and_sent_to_the_model() -> None:
    turns = [calls(("echo", '{"text": "a"}'), ("echo", '{"text": "b"}')), text("Done.")]
    run = MemoryRun(StreamedModel(turns), tools=[echo])
    finished(await run.start("go"))
    assert ["echo a" in one for one in tool_texts(run)] == [True, False]
    assert ["echo b" in one for one in tool_texts(run)] == [False, True]
    roles = [message["role"] for message in run.model.requests[1].messages]
    assert roles[-3:] == ["assistant", "tool", "tool"]


@pytest.mark.parametrize("strategy", ["ordered", "parallel", "sequential"])
async def test_one_failure_leaves_the_other_calls_alone(strategy: Strategy) -> None:
    turns = [calls(("echo", '{"text": "fail"}'), ("echo", '{"text": "b"}')), text("Done.")]
    run = MemoryRun(StreamedModel(turns), tools=[echo], policy=LoopPolicy(strategy=strategy))
    finished(await run.start("go"))
    ends = [event for event in run.log.events if isinstance(event, ToolFinished)]
    assert len(ends) == 2
    failed, other = tool_texts(run)
    assert "Try another text." in failed
    assert "echo b" in other


async def test_an_unknown_tool_and_wrong_arguments_are_results_for_the_model() -> None:
    turns = [calls(("nothing", "{}"), ("echo", '{"words": 1}')), text("Sorry.")]
    run = MemoryRun(StreamedModel(turns), tools=[echo])
    assert finished(await run.start("go")).status == "completed"
    unknown, wrong = tool_texts(run)
    assert "nothing" in unknown
    assert "text" in wrong


async def test_ask_ends_the_run_with_its_question() -> None:
    turns = [calls(("ask", '{"text": "Which colour?"}'))]
    run = MemoryRun(StreamedModel(turns), tools=[ask, complete])
    end = finished(await run.start("paint"))
    assert end.finish_reason == "agent_terminated"
    assert end.reply is not None
    assert end.reply.text == "Which colour?"


async def test_a_call_after_an_ask_is_not_run() -> None:
    turns = [calls(("ask", '{"text": "Which?"}'), ("echo", '{"text": "late"}'))]
    run = MemoryRun(StreamedModel(turns), tools=[ask, echo], policy=in_sequence())
    finished(await run.start("go"))
    assert not any("echo late" in one for one in tool_texts(run))
    assert len(tool_texts(run)) == 2


async def test_xml_calls_are_read_out_of_text() -> None:
    said = invokes(("echo", {"text": "a"}), said="I will call it. ")
    turns = [text(*pieces(said)), text("Done.")]
    run = MemoryRun(StreamedModel(turns), tools=[echo], dialect=XmlDialect())
    finished(await run.start("go"))
    assert "echo a" in tool_texts(run)[0]


async def test_a_cut_off_answer_is_continued_and_joined() -> None:
    run = MemoryRun(StreamedModel([text("one-", finish="length"), text("two")]))
    end = finished(await run.start("count"))
    assert end.reply is not None
    assert end.reply.text == "one-two"


@pytest.mark.parametrize("limit", [2, LoopPolicy().continuations_max])
async def test_an_answer_is_continued_no_more_often_than_the_policy_says(limit: int) -> None:
    parts = [f"part {number} of the list, " for number in range(limit + 5)]
    model = StreamedModel([text(part, finish="length") for part in parts])
    run = MemoryRun(model, policy=replace(LoopPolicy(), continuations_max=limit))
    end = finished(await run.start("a very long list"))
    assert LoopPolicy().continuations_max == 25
    assert len(model.requests) == limit + 1
    assert end.reply is not None
    assert end.reply.text == "".join(parts[: limit + 1]).strip()
    assert end.finish_reason == "length"


async def test_a_call_that_a_native_model_writes_as_text_is_run_and_nothing_of_it_is_posted() -> None:
    written = '<tool_call>\n{"name": "echo", "arguments": {"text": "a"}}\n</tool_call>'
    model = StreamedModel([text(*pieces(f"I look.\n{written}")), text("Done.")])
    run = MemoryRun(model, tools=[echo])
    end = finished(await run.start("go"))
    assert end.reply is not None
    assert end.reply.text == "Done."
    assert "echo a" in tool_texts(run)[0]
    shown = [one.text for one in run.log.events if isinstance(one, TextStreamed)]
    assert "".join(shown).split() == ["I", "look.", "Done."]
    # the model reads it as a real call, which is the example that it follows from then on
    called = [one for one in model.requests[1].messages if one.get("tool_calls")]
    assert len(called) == 1
    assert "tool_call>" not in str(model.requests[1].messages)


async def test_a_cut_off_answer_that_goes_on_with_calls_is_whole_in_every_attempt() -> None:
    started = ("echo", '{"text": "a"}')
    narrated = calls(("echo", '{"text": "b"}'), said="I look at the next one.")
    turns = [text("The first ha", finish="length"), calls(started, said="lf."), narrated]
    run = MemoryRun(StreamedModel([*turns, text("Attached.")]), tools=[echo])
    end = finished(await run.start("report"))
    assert end.reply is not None
    assert end.reply.text == "The first half.\n\nAttached."

    resumed = MemoryRun(StreamedModel([text("Attached.")]), tools=[echo])
    resumed.history = tuple(run.log.messages[:-1])
    assert finished(await resumed.start("go on")).reply == end.reply

    flow = replace(user_message("The next step."), metadata={FLOW_KEY: {"phase": "step"}})
    after = MemoryRun(StreamedModel([text("Sent.")]), history=(*resumed.history, flow))
    assert require(finished(await after.start("go on")).reply).text == "Sent."


async def test_a_call_of_a_run_without_a_cut_off_answer_adds_nothing_to_the_reply() -> None:
    turns = [calls(("echo", '{"text": "a"}'), said="I look."), text("Done.")]
    run = MemoryRun(StreamedModel(turns), tools=[echo])
    assert require(finished(await run.start("go")).reply).text == "Done."


async def test_the_limit_of_turns_ends_the_run() -> None:
    turns = [calls(("echo", f'{{"text": "{number}"}}')) for number in range(3)]
    run = MemoryRun(StreamedModel(turns), tools=[echo], policy=LoopPolicy(turns_max=3))
    end = finished(await run.start("go on"))
    assert end.finish_reason == "max_iterations"
    assert end.can_continue


async def test_turns_are_numbered_on_after_those_of_an_earlier_attempt() -> None:
    run = MemoryRun(StreamedModel([text("ok")]))
    finished(await run.start("go", turns_done=4))
    (started,) = [event for event in run.log.events if isinstance(event, TurnStarted)]
    assert started.number == 5


async def test_the_same_call_again_and_again_is_ended() -> None:
    turns = [calls(("echo", '{"text": "a"}')) for _ in range(9)]
    run = MemoryRun(StreamedModel(turns), tools=[echo])
    end = finished(await run.start("go"))
    assert end.status == "completed"
    assert len(run.model.requests) < 9


async def test_messages_that_arrive_are_in_the_next_request() -> None:
    run = MemoryRun(StreamedModel([calls(("echo", '{"text": "a"}')), text("Done.")]), tools=[echo])

    async def run_and_steer(params: Echo, context: ToolContext) -> str:
        run.steering.append(user_message("in red, please"))
        return await run_echo(params, context)

    run.tools = [replace(echo, run=run_and_steer)]
    finished(await run.start("go"))
    assert "in red, please" in str(run.model.requests[1].messages[-1])


async def test_a_stop_keeps_the_text_and_ends_the_run() -> None:
    gate = asyncio.Event()
    turn = [*text("Half of ")[:1], gate, *text("an answer")]
    run = MemoryRun(StreamedModel([turn]))
    task = asyncio.ensure_future(run.start("go"))
    while "text_streamed" not in run.log.kinds():
        await asyncio.sleep(0)
    run.switch.turn_on()
    end = finished(await task)
    assert (end.status, end.finish_reason) == ("stopped", "stopped")
    assert "Half of" in str(run.log.messages[-1].content)


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect()])
async def test_calls_that_a_stop_keeps_from_starting_have_results(dialect: Dialect) -> None:
    written = calls(("echo", '{"text": "a"}'), ("echo", '{"text": "half of'))
    if dialect.name == "xml":
        written = text(invokes(("echo", {"text": "a"})))
    turn = [*written[:-1], asyncio.Event()]
    policy = LoopPolicy(executes_on_stream=False)
    run = MemoryRun(StreamedModel([turn]), tools=[echo], dialect=dialect, policy=policy)
    task = asyncio.ensure_future(run.start("go"))
    for _ in range(50):
        await asyncio.sleep(0)
    run.switch.turn_on()
    assert finished(await task).status == "stopped"
    asked, result = run.log.messages
    (stopped,) = [event for event in run.log.events if isinstance(event, ToolFinished)]
    assert "Stopped by a person" in str(result.content)
    assert stopped.call_id in str(asked.content) or dialect.name == "xml"
    assert run.log.records == {}


async def test_a_budget_ends_the_run_before_the_next_model_call() -> None:
    run = MemoryRun(StreamedModel([]), budget_error=BudgetExceeded("The budget is used up."))
    end = finished(await run.start("go"))
    assert (end.finish_reason, end.message) == ("budget", "The budget is used up. Nothing was done in this run.")
    assert run.model.requests == []


async def test_an_error_of_the_model_ends_the_run_as_failed() -> None:
    run = MemoryRun(StreamedModel([[ModelRejected("The key is wrong.")]]))
    with pytest.raises(ModelRejected):
        await run.start("go")


async def test_a_cancellation_passes_through_and_emits_nothing_terminal() -> None:
    run = MemoryRun(StreamedModel([[asyncio.Event(), ended()]]))
    task = asyncio.ensure_future(run.start("go"))
    while not run.model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not {"run_finished", "run_failed", "turn_finished"} & set(run.log.kinds())


async def test_each_model_call_is_charged_once() -> None:
    run = MemoryRun(StreamedModel([calls(("echo", '{"text": "a"}')), text("ok")]), tools=[echo])
    finished(await run.start("go"))
    assert len(run.log.usage) == 2


def test_a_run_is_told_its_turn_only_near_the_end() -> None:
    told = [number for number in range(1, 101) if turns_left(number, 100)]
    assert told == [91, 96, 98, 99, 100]
    assert turns_left(100, 100) == "This is turn 100 of at most 100."
