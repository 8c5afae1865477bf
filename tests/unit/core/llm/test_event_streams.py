"""Server-sent events are read in bounded memory, in whatever lines a server writes them."""

from collections.abc import Iterator

import pytest

from core.domain.errors import ModelUnavailable
from core.llm import openai_answer
from core.llm.openai_answer import AnswerReader, ServerSentEventReader, join_deltas
from core.llm.reasoning import ReasoningOrigin
from core.ports import ModelDelta, TextDelta, ThinkingDelta, ToolCallDelta

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


def broken(*deltas: ModelDelta) -> Iterator[ModelDelta]:
    yield from deltas
    raise ModelUnavailable("broke off")


def test_texts_that_arrive_together_are_joined_and_come_before_an_error():
    deltas = broken(
        ThinkingDelta(text="h"),
        ThinkingDelta(text="m"),
        TextDelta(text="a"),
        TextDelta(text="", replaces_earlier=True),
        TextDelta(text="b"),
        TextDelta(text="c"),
        ToolCallDelta(index=0, arguments="{"),
        ToolCallDelta(index=0, arguments="{}"),
    )
    found: list[ModelDelta] = []
    with pytest.raises(ModelUnavailable):
        found.extend(join_deltas(deltas))
    assert found == [
        ThinkingDelta(text="hm"),
        TextDelta(text="a"),
        TextDelta(text="bc", replaces_earlier=True),
        ToolCallDelta(index=0, arguments="{"),
        ToolCallDelta(index=0, arguments="{}"),
    ]
