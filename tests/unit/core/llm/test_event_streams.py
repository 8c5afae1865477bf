"""Server-sent events are read in bounded memory, in whatever lines a server writes them."""

import pytest

from core.llm import openai_answer
from core.llm.openai_answer import AnswerReader, ServerSentEventReader
from core.llm.reasoning import ReasoningOrigin
from core.ports import ModelDelta, TextDelta

EVENT = b'data: {"choices":\ndata: [{"delta": {"content": "a"}}]}\n\n'


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_answer, "LINE_BYTES_MAX", 1_000)


def reader() -> ServerSentEventReader:
    origin = ReasoningOrigin("provider", "model")
    return ServerSentEventReader(AnswerReader(origin, late_thinkers=set()))


def text_of(deltas: list[ModelDelta]) -> str:
    return "".join(one.text for one in deltas if isinstance(one, TextDelta))


@pytest.mark.parametrize("piece", [b"data: [\n", b"data: [\r", b"data: [", b"data: [\r\n"])
def test_an_event_that_does_not_end_ends_the_answer(piece: bytes):
    events = reader()
    for _ in range(2_000):
        assert list(events.feed(piece)) == []
        if events.is_over:
            return
    raise AssertionError("the event is kept without end")


def test_many_events_of_several_lines_are_not_counted_together():
    events = reader()
    assert text_of([one for _ in range(100) for one in events.feed(EVENT)]) == "a" * 100
    assert not events.is_over
