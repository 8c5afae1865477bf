"""Ids of tool calls in requests: short, of allowed characters, unique, and the same in every later request."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.json import JsonObject
from core.llm.call_ids import with_usable_call_ids


def turn(*ids: str) -> list[JsonObject]:
    calls = [{"id": one, "type": "function", "function": {"name": "f"}} for one in ids]
    assistant: JsonObject = {"role": "assistant", "content": None, "tool_calls": [*calls]}
    results: list[JsonObject] = [
        {"role": "tool", "tool_call_id": one, "content": f"result {place}"} for place, one in enumerate(ids)
    ]
    return [assistant, *results]


def ids_of(messages: list[Any]) -> list[str]:
    return [call["id"] for one in messages for call in one.get("tool_calls") or ()]


def results_of(messages: list[JsonObject]) -> list[str]:
    return [str(one["tool_call_id"]) for one in messages if one["role"] == "tool"]


ANY_ID = st.one_of(st.text(max_size=60), st.sampled_from(["", "call_0", "a" * 3000, "functions.f:0"]))


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("gpt-5", r"[a-zA-Z0-9_-]{1,40}"),
        ("openrouter/mistralai/devstral", r"[a-zA-Z0-9]{9}"),
        ("moonshot/kimi-k2.5", r"functions\.f:\d+"),
        ("any", r"[a-zA-Z0-9_-]{1,40}|functions\.[\w-]+:\d+"),
    ],
)
@given(turns=st.lists(st.lists(ANY_ID, min_size=1, max_size=4), max_size=6))
def test_every_id_is_usable_unique_and_stable(model: str, allowed: str, turns: list[list[str]]) -> None:
    history = [message for ids in turns for message in turn(*ids)]
    sent = list(with_usable_call_ids(model, history))
    ids = ids_of(sent)
    assert all(re.fullmatch(allowed, one) for one in ids)
    assert len(set(ids)) == len(ids)
    assert results_of(sent) == ids, "each result stands under the id of its call"
    shorter = history[: len(history) // 2]
    assert list(with_usable_call_ids(model, shorter)) == sent[: len(shorter)]


def test_messages_that_need_no_change_are_the_same_objects() -> None:
    history: list[JsonObject] = [{"role": "user", "content": "hi"}, *turn("call_a", "call_b")]
    sent = with_usable_call_ids("gpt-5", history)
    assert all(one is other for one, other in zip(history, sent, strict=True))


@pytest.mark.parametrize("model", ["kimi-k2.5", "served-under-another-name"])
def test_ids_of_kimi_come_back_as_they_came_and_stay_unique(model: str) -> None:
    history = [*turn("functions.f:0", "functions.f:1"), *turn("functions.f:0")]
    assert ids_of(list(with_usable_call_ids(model, history[:3]))) == ["functions.f:0", "functions.f:1"]
    sent = list(with_usable_call_ids(model, history))
    assert ids_of(sent) == ["functions.f:0", "functions.f:1", "functions.f:2"]
    assert results_of(sent) == ids_of(sent)


def test_the_history_of_another_model_names_the_tools_for_kimi() -> None:
    sent = list(with_usable_call_ids("kimi-k2.5", turn("call_a", "call_b")))
    assert ids_of(sent) == ["functions.f:0", "functions.f:1"]
