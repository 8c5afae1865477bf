"""Answers that stand in the reasoning, or before an empty end: people get what was said, and nothing is paid twice."""

import pytest

from core.domain.events import RunFinished
from core.ports import ThinkingDelta
from core.tools.replies import complete
from tests.fakes.memory_run import MemoryRun
from tests.fakes.streamed_model import Played, StreamedModel, calls, ended, text
from tests.unit.core.loop.test_run_agent import echo

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
    model = StreamedModel(turns)
    end = await MemoryRun(model, tools=[echo, complete]).start("go")
    assert isinstance(end, RunFinished)
    assert end.reply is not None
    assert end.reply.whole_text == answer
    assert len(model.requests) == requests
