"""The loop, its turns and their tool calls, without a store, a process or a socket."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import BaseModel

from core.context.background_messages import FLOW_KEY
from core.dialects.dialect import Dialect
from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.approval import Approval
from core.domain.call_consent import STAYS
from core.domain.errors import ModelUnavailable, ToolError
from core.domain.events import RunFinished, TextStreamed, ToolFinished
from core.domain.messages import Message
from core.loop.loop import turn_notice
from core.loop.run_context import LoopPolicy
from core.ports import ThinkingDelta
from core.tools.replies import complete
from core.tools.tool import Tool, ToolContext, ToolOutput
from tests.fakes.memory_run import MemoryRun, user_message
from tests.fakes.streamed_model import Played, StreamedModel, calls, ended, invokes, pieces, text
from tests.support.narrow import require, require_type


class Echo(BaseModel):
    """Returns the text."""

    text: str


async def run_echo(params: Echo, _context: ToolContext) -> str:
    if params.text == "fail":
        raise ToolError("It failed. Try another text.")
    return f"echo {params.text}"


echo = Tool(
    name="echo", effect="reads", reach=STAYS, params=Echo, run=run_echo, title=lambda params: f"echo {params.text}"
)


def finished(end: object) -> RunFinished:
    assert isinstance(end, RunFinished)
    return end


def tool_texts(run: MemoryRun) -> list[str]:
    return [str(message.content) for message in run.log.messages if message.type == "tool"]


@pytest.mark.parametrize("limit", [2, LoopPolicy().continuations_max])
async def test_an_answer_is_continued_no_more_often_than_the_policy_says(limit: int) -> None:
    parts = [f"part {number} of the list, " for number in range(limit + 5)]
    model = StreamedModel([text(part, finish="length") for part in parts])
    run = MemoryRun(model, policy=replace(LoopPolicy(), continuations_max=limit))
    end = finished(await run.start("a very long list"))
    assert LoopPolicy().continuations_max == 25
    assert len(model.requests) == limit + 1
    assert require(end.reply).text == "".join(parts[: limit + 1]).strip()
    assert end.finish_reason == "length"


async def test_a_call_that_a_native_model_writes_as_text_is_run_and_nothing_of_it_is_posted() -> None:
    written = '<tool_call>\n{"name": "echo", "arguments": {"text": "a"}}\n</tool_call>'
    model = StreamedModel([text(*pieces(f"I look.\n{written}")), text("Done.")])
    run = MemoryRun(model, tools=[echo])
    end = finished(await run.start("go"))
    assert require(end.reply).text == "Done."
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

    flow = replace(user_message("The next step."), run_id="run", metadata={FLOW_KEY: {"phase": "step"}})
    after = MemoryRun(StreamedModel([text("Sent.")]), history=(*resumed.history, flow))
    assert require(finished(await after.start("go on")).reply).text == "Sent."


async def test_what_was_said_last_is_the_answer_of_a_model_that_falls_silent_in_every_attempt() -> None:
    silence = [[ended()]] * 9
    looked = calls(("echo", '{"text": "a"}'), said="I look.")
    run = MemoryRun(StreamedModel([looked, *silence]), tools=[echo])
    assert require(finished(await run.start("go")).reply).text == "I look."

    resumed = MemoryRun(StreamedModel(silence), tools=[echo], history=tuple(run.log.messages))
    assert require(finished(await resumed.start("go on")).reply).text == "I look."
    later = MemoryRun(StreamedModel(silence), tools=[echo], history=tuple(run.log.messages), run_id="another")
    with pytest.raises(ModelUnavailable):
        await later.start("go on")


async def test_a_call_of_a_run_without_a_cut_off_answer_adds_nothing_to_the_reply() -> None:
    turns = [calls(("echo", '{"text": "a"}'), said="I look."), text("Done.")]
    run = MemoryRun(StreamedModel(turns), tools=[echo])
    assert require(finished(await run.start("go")).reply).text == "Done."


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


async def test_a_cancellation_passes_through_and_emits_nothing_terminal() -> None:
    run = MemoryRun(StreamedModel([[asyncio.Event(), ended()]]))
    task = asyncio.ensure_future(run.start("go"))
    while not run.model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not {"run_finished", "run_failed", "turn_finished"} & set(run.log.kinds())


def test_a_run_is_told_its_turn_only_near_the_end() -> None:
    told = [number for number in range(1, 101) if turn_notice(number, 100)]
    assert told == [91, 96, 98, 99, 100]
    assert turn_notice(100, 100) == "This is turn 100 of at most 100."


FINDINGS = "The table has 12 rows, and two of them have no name."


def thought(words: str) -> Played:
    return [ThinkingDelta(text=words), ended()]


EMPTY: Played = [ended()]
CALL = '<tool_call>\n{"name": "echo", "arguments": {"text": "a"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("turns", "answer", "requests"),
    [
        pytest.param([thought(f"I look first. {CALL}"), text("Found.")], "Found.", 2, id="a call in reasoning"),
        pytest.param([thought(FINDINGS), thought(FINDINGS)], FINDINGS, 2, id="the answer in reasoning"),
        pytest.param(
            [calls(("echo", '{"text": "a"}'), said=FINDINGS), EMPTY, EMPTY, EMPTY],
            FINDINGS,
            4,
            id="a text with a call and then nothing",
        ),
        pytest.param(
            [calls(("echo", '{"text": "a"}'), said=FINDINGS), calls(("complete", "{}"))],
            FINDINGS,
            2,
            id="an empty end after a text",
        ),
    ],
)
async def test_what_was_said_is_the_answer(turns: list[Played], answer: str, requests: int) -> None:
    model = StreamedModel([*turns])
    end = require_type(await MemoryRun(model, tools=[echo, complete]).start("go"), RunFinished)
    assert require(end.reply).whole_text == answer
    assert len(model.requests) == requests


@pytest.mark.parametrize("executes_on_stream", [True, False])
async def test_the_image_of_a_call_is_stored_with_its_result_although_the_turn_waits_for_users(
    *, executes_on_stream: bool
) -> None:
    async def look(_params: Echo, context: ToolContext) -> ToolOutput:
        image = Message(type="image_context", content={}, is_llm_message=False, thread_id=context.thread_id)
        return ToolOutput(output="seen", messages=(image,))

    send = replace(echo, name="send", effect="acts", needs_approval=lambda _params: "Send it?")
    model = StreamedModel([calls(("look", '{"text": "a"}'), ("send", '{"text": "b"}'))])
    policy = LoopPolicy(executes_on_stream=executes_on_stream)
    run = MemoryRun(model, tools=[replace(echo, name="look", run=look), send], policy=policy)
    assert isinstance(await run.start("go"), Approval)
    assert [record.state for record in run.log.records.values()] == ["finished", "awaiting"]
    assert sorted(message.type for message in run.log.messages) == ["assistant", "image_context"]
