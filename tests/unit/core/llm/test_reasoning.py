"""What is kept of a model's reasoning, whatever the pieces in which it arrives."""

from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY
from core.llm.reasoning import (
    KEPT_CHARACTERS_MAX,
    KEPT_FIELDS_MAX,
    ReasoningCollector,
    ReasoningOrigin,
    build_wire_message,
    kept_names,
    provider_of,
)

HERE = ReasoningOrigin("host/v1", "m")
ANSWER: JsonObject = {"role": "assistant", "content": "x", "tool_calls": None}
Json = dict[str, Any]


def fields(*deltas: Json) -> Json:
    collector = ReasoningCollector(HERE)
    for delta in deltas:
        collector.read(delta)
    (last,) = collector.take_snapshot()
    assert collector.take_snapshot() == ()
    found: Any = last.content["fields"]
    return found


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


TEXTS = st.text(min_size=1)
CUTS = st.lists(st.integers(0, 40))


@given(TEXTS, CUTS)
def test_a_text_is_kept_whole(text: str, cuts: list[int]):
    got = fields(*({"reasoning_content": one} for one in pieces(text, cuts)))
    assert got == {"reasoning_content": text}


def test_a_character_that_was_split_is_one_again():
    got = fields({"reasoning": "a\ud83e"}, {"reasoning": "\udd14b"}, {"reasoning": "\ud83e"})
    assert got == {"reasoning": "a\U0001f914b\ufffd"}


@given(st.lists(st.tuples(TEXTS, CUTS), min_size=1, max_size=4))
def test_signed_blocks_are_told_apart_although_all_have_the_same_index(blocks: list[tuple[str, list[int]]]):
    deltas: list[Json] = []
    for number, (text, cuts) in enumerate(blocks):
        start = {"type": "reasoning.text", "index": 0}
        deltas += [{"reasoning_details": [{**start, "text": one}]} for one in pieces(text, cuts)]
        deltas.append({"reasoning_details": [{**start, "signature": f"s{number}"}]})
        deltas.append({"reasoning_details": [{"type": "reasoning.encrypted", "data": text}]})
    got = fields(*deltas)["reasoning_details"]
    assert [one["text"] for one in got[::2]] == [text for text, _ in blocks]
    assert [one["signature"] for one in got[::2]] == [f"s{number}" for number in range(len(blocks))]
    assert [one["data"] for one in got[1::2]] == [text for text, _ in blocks]


def test_blocks_without_signatures_are_told_apart_by_their_index():
    got = fields(
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "a", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "b", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "c", "index": 1}]},
    )
    assert [one["summary"] for one in got["reasoning_details"]] == ["ab", "c"]


def test_blocks_count_more_than_the_text_that_repeats_them():
    got = fields({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]})
    assert got == {"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}


def test_odd_reasoning_breaks_nothing():
    collector = ReasoningCollector(HERE)
    collector.read({"reasoning": 1, "reasoning_details": ["x", None], "thinking_blocks": {"a": 1}})
    collector.read_call(0, {"extra_content": {}, "provider_specific_fields": None})
    assert collector.take_snapshot() == ()


@pytest.mark.parametrize("indices", [(0, 0, 0), (0, 1, 2), (1, 2, 3), (7, 7, 7)])
def test_each_call_keeps_its_own_fields_whatever_index_the_service_gives_it(indices: tuple[int, int, int]):
    collector = ReasoningCollector(HERE)
    for index, call_id in zip(indices, "abc", strict=True):
        seal = {"seal": f"{call_id}1"} if call_id != "b" else {}
        collector.read_call(index, {"id": call_id, "function": {}, **seal})
        collector.read_call(index, {"function": {"arguments": "{}"}, **(seal and {"seal": "2"})})
    (last,) = collector.take_snapshot()
    calls: Any = [{"id": one, "function": {}} for one in "abc"]
    sent = build_wire_message({**ANSWER, "tool_calls": calls, REASONING_KEY: last.content}, HERE)
    kept = [cast("JsonObject", one).get("seal") for one in cast("list[JsonObject]", sent["tool_calls"])]
    assert kept == ["a12", None, "c12"]


def test_unknown_fields_of_a_message_and_a_call_are_kept_and_sent_back():
    collector = ReasoningCollector(HERE)
    collector.read({"content": "x", "refusal": None, "annotations": [1], "seal": "ab", "mark": {"a": 1}})
    collector.read({"seal": "cd", "mark": {"b": 2}, "empty": []})
    collector.read_call(0, {"index": 0, "id": "a", "type": "function", "function": {}})
    collector.read_call(1, {"index": 1, "id": "c", "type": "function", "function": {}, "proof": "p"})
    (last,) = collector.take_snapshot()
    calls: Any = [{"id": "a", "function": {}}, {"id": "c", "function": {}}]
    stored: JsonObject = {**ANSWER, "tool_calls": calls, REASONING_KEY: last.content}
    expected = {"seal": "abcd", "mark": {"a": 1, "b": 2}}
    sent = build_wire_message(stored, HERE)
    assert {key: sent.get(key) for key in expected} == expected
    assert set(sent) == {"role", "content", "tool_calls", *expected}
    assert sent["tool_calls"] == [calls[0], {**calls[1], "proof": "p"}]
    refused = frozenset({"seal", "proof"})
    assert build_wire_message(stored, HERE, refused=refused) == {
        "role": "assistant",
        "content": "x",
        "tool_calls": calls,
        "mark": {"a": 1, "b": 2},
    }
    elsewhere = build_wire_message(stored, ReasoningOrigin("host/v1", "n"))
    assert elsewhere == {"role": "assistant", "content": "x", "tool_calls": calls}
    assert kept_names([stored], HERE) == {"seal", "mark", "proof"}


def test_a_library_keeps_of_a_message_only_what_it_needs_again():
    collector = ReasoningCollector(HERE, is_library=True)
    state = {"thought_signatures": ["s"], "citation": "c"}
    collector.read({"content": "x", "seal": "a", "provider_specific_fields": state})
    (last,) = collector.take_snapshot()
    assert last.content["fields"] == {"provider_specific_fields": {"thought_signatures": ["s"]}}


@pytest.mark.parametrize("key", ["reasoning_content", "seal"])
def test_too_much_is_not_kept_at_all(key: str):
    collector = ReasoningCollector(HERE)
    collector.read({"reasoning": "short", "mark": {"a": 1}})
    for _ in range(5):
        collector.read({key: "x" * (KEPT_CHARACTERS_MAX // 4)})
    collector.read({"reasoning": "short again"})
    (last,) = collector.take_snapshot()
    assert last.content["fields"] == {}


def test_the_number_of_unknown_fields_is_bounded():
    got = fields({f"field_{number}": 1 for number in range(1_000)})
    assert len(got) == KEPT_FIELDS_MAX


def kept(origin: ReasoningOrigin, more: JsonObject) -> JsonObject:
    state: JsonObject = {"provider": origin.provider, "model": origin.model, "fields": more}
    return {**ANSWER, REASONING_KEY: state}


def test_reasoning_is_sent_to_its_own_model_at_its_own_provider_only():
    message = kept(HERE, {"reasoning_content": "hm"})
    assert build_wire_message(message, HERE)["reasoning_content"] == "hm"
    for other in (ReasoningOrigin("host/v1", "n"), ReasoningOrigin("other/v1", "m")):
        assert build_wire_message(message, other) == {"role": "assistant", "content": "x"}


def test_state_that_cannot_be_read_is_left_out():
    for state in (None, "x", {"provider": "host/v1", "model": "m", "fields": "x"}, {}):
        assert build_wire_message({**ANSWER, REASONING_KEY: state}, HERE) == {"role": "assistant", "content": "x"}


def test_the_provider_is_named_without_credentials():
    assert provider_of("https://me:secret@host:1/v1/") == "host:1/v1"
