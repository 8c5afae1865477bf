"""What people see while a model answers, by what it sends when."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import BaseModel

from core.dialects.native import NativeDialect
from core.dialects.xml import XmlDialect
from core.domain.call_consent import STAYS
from core.domain.errors import AnswerRejected, ModelUnavailable
from core.domain.events import (
    ActivityChanged,
    AgentEvent,
    FinishReached,
    ResponseStarted,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    TurnFinished,
    TurnStarted,
)
from core.domain.threads import Usage
from core.llm.error_mapping import ANSWER_BROKE_OFF
from core.loop import turn
from core.loop.run_context import LoopPolicy
from core.ports import (
    ModelDelta,
    ModelFinished,
    ModelRequest,
    ModelRetried,
    ReasoningSnapshot,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from core.tools.tool import Tool, ToolContext
from tests.fakes.memory_run import MemoryRun
from tests.fakes.streamed_model import StreamedModel, calls, ended, invokes, text
from tests.histories.virtual_time import in_virtual_time
from tests.support.narrow import require, require_type

EMPTY, TOO_LONG = "Your answer was empty.", "before it contained any text or call"
SIGN = "a sign of life"
LENGTH, AGAIN, REJECTED = ended("length"), ModelRetried(text="Another try"), AnswerRejected("no", detail="no JSON")


@dataclass
class PacedModel(StreamedModel):
    """Plays steps that may also be pauses in seconds, or signs of life."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.requests.append(request)
        steps: list[Any] = [*self.turns.pop(0)]
        for step in steps:
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif step == SIGN:
                require(request.on_received)()
            elif isinstance(step, Exception):
                raise step
            else:
                yield step


class Note(BaseModel):
    """Notes a text."""

    text: str


async def note(_params: Note, _context: ToolContext) -> str:
    return "noted"


NOTE = Tool(name="note", effect="reads", reach=STAYS, params=Note, run=note, title=lambda params: params.text)


def shown(events: Sequence[AgentEvent]) -> str:
    parts = list[str]()
    for event in events:
        match event:
            case TurnStarted(number=number):
                parts.append(f"{number}.")
            case ResponseStarted():
                parts.append("|")
            case TextStreamed(text=words, sequence=sequence):
                parts.append(f"{sequence}:{words.strip()}")
            case ThinkingStreamed(text=words, seconds=seconds, sequence=sequence):
                parts.append(f"{sequence}:thinks {seconds} {words}".rstrip())
            case ToolCallStreamed(sequence=sequence, name=name):
                parts.append(f"{sequence}:{name}")
            case ActivityChanged(text=words):
                parts.append(f"({words})")
            case FinishReached(reason=reason):
                parts.append(f"={reason}")
            case TurnFinished():
                parts.append(".")
            case _:
                pass
    return " ".join(parts)


def thinks(words: str) -> ThinkingDelta:
    return ThinkingDelta(text=words)


def says(words: str, *, replaces_earlier: bool = False) -> TextDelta:
    return TextDelta(text=words, replaces_earlier=replaces_earlier)


def xml(*names: str) -> list[Any]:
    return text(invokes(*((name, {"text": "a"}) for name in names)))


CALL = calls(*[("note", '{"text": "a"}')] * 2)[:-1]
OK = text("Ok")


@pytest.mark.parametrize(
    ("steps", "settings", "expected"),
    [
        ([text("Hi", " all")], {}, "1. | 0:Hi 1:all =stop ."),
        ([[AGAIN, *text("Hi")]], {}, "1. | (Another try) (Thinking) 0:Hi =stop ."),
        ([[thinks("x"), says("Ha "), AGAIN, *text("Hi")]], {},
         "1. | 0:thinks 0 1:Ha | (Another try) (Thinking) 0:Hi =stop ."),
        ([[says("Hm "), says("Hi", replaces_earlier=True), ended()]], {}, "1. | 0:Hm | 0:Hi =stop ."),
        ([[*CALL, says("Hi", replaces_earlier=True), ended()], OK], {},
         "1. | 0:note 1:note 2:Hi =tool_calls . 2. | 0:Ok =stop ."),
        ([[thinks("a"), 2.5, thinks("b"), thinks("c"), *text("Hi")]], {}, "1. | 0:thinks 0 1:thinks 2 2:Hi =stop ."),
        ([[thinks("a"), thinks("b"), *text("Hi")]], {"shows_reasoning": True},
         "1. | 0:thinks 0 a 1:thinks 0 b 2:Hi =stop ."),
        ([[25.0, *text("Hi")]], {},
         "1. | (Waiting for the model, 10 s) (Waiting for the model, 20 s) (Thinking) 0:Hi =stop ."),
        ([[9.0, SIGN, 2.0, *text("Hi")]], {}, "1. | (Thinking, 10 s) (Thinking) 0:Hi =stop ."),
        ([[thinks("x"), 5.0, SIGN, 6.0, *text("Hi")]], {}, "1. | 0:thinks 0 (Thinking, 10 s) (Thinking) 1:Hi =stop ."),
        ([[5.0, thinks("x"), 6.0, says("Hi"), ended()]], {}, "1. | 0:thinks 0 1:Hi =stop ."),
        ([[says("Hi"), SIGN, 11.0, ended()]], {}, "1. | 0:Hi =stop ."),
        ([[says("Hi "), AGAIN, SIGN, 11.0, *OK]], {},
         "1. | 0:Hi | (Another try) (Thinking, 10 s) (Thinking) 0:Ok =stop ."),
        ([[says("Hi"), ended("content_filter")]], {},
         f"1. | 0:Hi{turn.CUT_BY_FILTER.removesuffix(' here.)')} 1:here.) =stop ."),
        ([xml("note", "note"), OK], {"xml_calls_max": 1}, "1. | =xml_tool_limit_reached . 2. | 0:Ok =stop ."),
        ([xml("note", "note"), OK], {"xml_calls_max": 3, "executes_on_stream": False},
         "1. | =tool_calls . 2. | 0:Ok =stop ."),
        ([[says("Hi"), 5.0, SIGN, 6.0, says(" all"), ended()]], {}, "1. | 0:Hi 1:all =stop ."),
        ([[says("a"), 30.0, says(" b"), ended()]], {},
         "1. | (Waiting for the model, 10 s) (Waiting for the model, 20 s) (Thinking) 0:a 1:b =stop ."),
        ([[thinks("x"), 3.0, thinks("y"), AGAIN, thinks("z"), *OK]], {},
         "1. | 0:thinks 0 1:thinks 3 | (Another try) (Thinking) 0:thinks 0 1:Ok =stop ."),
        ([[*CALL, AGAIN], OK], {}, "1. | 0:note 1:note =tool_calls . 2. | 0:Ok =stop ."),
    ],
)  # fmt: skip
@in_virtual_time
async def test_people_see_each_part_once(steps: list[Any], settings: dict[str, Any], expected: str) -> None:
    dialect = XmlDialect() if "xml_calls_max" in settings else NativeDialect()
    policy = replace(LoopPolicy(), **settings)
    run = MemoryRun(PacedModel([list(step) for step in steps]), tools=[NOTE], dialect=dialect, policy=policy)
    assert isinstance(await run.start("go"), RunFinished)
    assert shown(run.log.events) == expected


@pytest.mark.parametrize(
    ("steps", "notes", "end"),
    [
        ([[ended()], OK], ["", EMPTY], "Ok"),
        ([[LENGTH], OK], ["", TOO_LONG], "Ok"),
        ([[ended()]] * 3, ["", *[EMPTY] * 2], turn.ALWAYS_EMPTY),
        ([[LENGTH]] * 3, ["", *[TOO_LONG] * 2], turn.ALWAYS_CUT_OFF),
        ([[REJECTED], OK], ["", "could not be read, and nothing of it was run: no JSON"], "Ok"),
        ([[REJECTED]] * 3, ["", *["could not be read"] * 2], "no"),
        ([[thinks("Yes")], OK], [""], ANSWER_BROKE_OFF),
        ([[thinks("Yes"), LENGTH]] * 3, ["", *[TOO_LONG] * 2], turn.ALWAYS_CUT_OFF),
        ([[says("x"), REJECTED], OK], ["", "could not be read"], "Ok"),
        ([[*CALL, REJECTED], OK], ["", "noted"], "Ok"),
        ([[ModelUnavailable("away")], OK], [""], "away"),
    ],
)
async def test_an_answer_without_words_is_asked_for_again(steps: list[Any], notes: list[str], end: str) -> None:
    model = StreamedModel([list(step) for step in steps])
    run = MemoryRun(model, tools=[NOTE])
    finished = await asyncio.gather(run.start("go"), return_exceptions=True)
    answer = require(finished[0].reply).text if isinstance(finished[0], RunFinished) else str(finished[0])
    assert answer == end
    assert [note for note, tail in zip(notes, model.tails, strict=True) if note not in tail] == []
    assert "Note from" not in model.tails[0]
    starts = [event for event in run.log.events if isinstance(event, ResponseStarted)]
    assert len(starts) == len(model.requests)


@pytest.mark.parametrize(("usage", "tokens"), [(None, 15), (Usage(output_tokens=77), 77), (Usage(), 15)])
async def test_a_call_that_is_cut_off_is_told_the_limit(usage: Usage | None, tokens: int) -> None:
    half = ToolCallDelta(index=0, call_id="c", name="note", arguments='{"text": "' + "a" * 50)
    run = MemoryRun(StreamedModel([[half, ModelFinished(finish_reason="length", usage=usage)], OK]), tools=[NOTE])
    await run.start("go")
    (result,) = [message for message in run.log.messages if message.type == "tool"]
    assert f"its limit of {tokens} tokens" in str(result.content["content"])


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        ([says("ab"), says("cd"), says("e")], "abcd"),
        ([says("é"), says("é"), says("é")], "éé"),
        ([says("ab"), AGAIN, says("abcd"), ended()], "abcd"),
    ],
)
async def test_an_answer_is_read_up_to_its_limit(monkeypatch: pytest.MonkeyPatch, steps: list[Any], end: str) -> None:
    monkeypatch.setattr(turn, "ANSWER_BYTES_MAX", 4)
    run = MemoryRun(StreamedModel([[*steps]]), policy=LoopPolicy(continuations_max=0))
    finished = require_type(await run.start("go"), RunFinished)
    assert require(finished.reply).text == end


async def test_the_reasoning_of_the_newest_attempt_is_kept() -> None:
    first, second = ReasoningSnapshot(content={"n": 1}), ReasoningSnapshot(content={"n": 2})
    run = MemoryRun(StreamedModel([[first, says("x"), AGAIN, *OK]]))
    await run.start("go")
    assert "reasoning_state" not in run.log.messages[0].content
    run = MemoryRun(StreamedModel([[first, says("x"), second, ended()]]))
    await run.start("go")
    assert {"n": 2} in run.log.messages[0].content.values()
