"""Server-sent events are read in bounded memory, in whatever lines a server writes them."""

from collections.abc import Iterator

import pytest

from core.domain.errors import ModelUnavailable
from core.domain.threads import Usage
from core.llm import openai_answer
from core.llm.openai_answer import AN_IMAGE, AnswerReader, ServerSentEventReader, join_deltas, parse_usage
from core.llm.reasoning import ReasoningOrigin
from core.llm.thinking import ThinkingHabit
from core.ports import ModelDelta, TextDelta, ThinkingDelta, ToolCallDelta

EVENT = b'data: {"choices":\ndata: [{"delta": {"content": "a"}}]}\n\n'


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_answer, "LINE_BYTES_MAX", 1_000)


def reader() -> ServerSentEventReader:
    origin = ReasoningOrigin("provider", "model")
    return ServerSentEventReader(AnswerReader(origin, habits={}))


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


def test_tokens_and_a_cost_are_read() -> None:
    told = {"prompt_tokens": 7, "completion_tokens": 3.0, "cost": 0.5}
    told["prompt_tokens_details"] = {"cached_tokens": 2}
    assert parse_usage(told) == Usage(input_tokens=7, cached_tokens=2, output_tokens=3, cost_usd=0.5)


@pytest.mark.parametrize("figure", [float("inf"), float("nan"), -1, 10**30, "7", None, [7], True])
def test_a_figure_that_cannot_be_one_counts_as_not_told(figure: object) -> None:
    told = {"prompt_tokens": figure, "prompt_cache_hit_tokens": figure, "completion_tokens": figure}
    assert parse_usage(told) == Usage()


@pytest.mark.parametrize("cost", [float("inf"), float("nan"), -1, 10**400, "1", True])
def test_a_cost_that_cannot_be_one_counts_as_not_told(cost: object) -> None:
    assert parse_usage({"cost": cost}) == Usage()


def test_a_picture_in_an_answer_is_told_once() -> None:
    reader = AnswerReader(ReasoningOrigin(provider="p", model="m"), {})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    chunk: dict[str, object] = {"choices": [{"delta": {"content": "", "images": [picture]}}]}
    assert [*reader.read(chunk), *reader.read(chunk)] == [TextDelta(text=AN_IMAGE)]


def answer(text: str, finish: str = "stop", **fields: str) -> dict[str, object]:
    return {"choices": [{"message": {"content": text, **fields}, "finish_reason": finish}]}


LATE = answer("Hm.\n</think>\n\nYes.")


@pytest.mark.parametrize(
    ("answers", "habit"),
    [
        ([LATE], "late"),
        ([LATE, answer("Hm", "length")], "late"),
        ([LATE, answer("Yes.")], "plain"),
        ([answer("Yes."), LATE, LATE], "plain"),
        ([answer("Write </think> there.")], "plain"),
        ([answer("Hm", "length"), LATE], "late"),
        ([LATE, answer("Yes.", reasoning_content="Hm."), LATE], "field"),
    ],
)
def test_one_answer_cannot_change_where_a_model_thinks(answers: list[dict[str, object]], habit: str) -> None:
    habits: dict[str, ThinkingHabit] = {}
    for body in answers:
        answer_reader = AnswerReader(ReasoningOrigin(provider="p", model="m"), habits)
        answer_reader.read(body)
        answer_reader.flush()
    assert habits == {"m": habit}
