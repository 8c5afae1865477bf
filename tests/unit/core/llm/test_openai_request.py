import json

import pytest

from core.domain.json import JsonObject
from core.llm import openai_request
from core.llm.openai_request import RequestEncoder
from core.llm.responses_api import ResponsesEncoder
from core.ports import ModelOptions, ModelRequest

QUESTION: JsonObject = {"role": "user", "content": "hi \u4f60 \ud800"}
ANSWER: JsonObject = {"role": "assistant", "content": "yes", "tool_calls": None}
TOOL: JsonObject = {"type": "function", "function": {"name": "ls"}}


def writer() -> RequestEncoder:
    return RequestEncoder(provider="p", model_prefix="openai/", tokens_key="max_tokens")


def test_the_whole_request_is_one_json_object():
    request = ModelRequest(
        model="openai/gpt",
        messages=(QUESTION, ANSWER),
        tools=(TOOL,),
        temperature=0.5,
        output_tokens_max=10,
        stop_sequences=("Observation:",),
    )
    assert json.loads(writer().body(request)) == {
        "model": "gpt",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_tokens": 10,
        "stop": ["Observation:"],
        "messages": [QUESTION, {"role": "assistant", "content": "yes"}],
        "tools": [TOOL],
    }


def test_a_history_that_has_grown_is_sent_as_if_it_were_new():
    kept, fresh = writer(), writer()
    first = ModelRequest(model="m", messages=(QUESTION,), is_streamed=False)
    kept.body(first)
    grown = ModelRequest(model="m", messages=(QUESTION, ANSWER, QUESTION), is_streamed=False)
    assert kept.body(grown) == fresh.body(grown)
    assert kept.body(first) == fresh.body(first)


def test_messages_that_come_and_go_never_take_the_place_of_others():
    one = writer()
    for number in range(2_000):
        message: JsonObject = {"role": "user", "content": f"message {number}"}
        body = json.loads(one.body(ModelRequest(model="m", messages=(message,))))
        assert body["messages"] == [message]


def test_what_is_kept_stays_small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(openai_request, "CACHE_BYTES_MAX", 1_000)
    one = writer()
    messages: tuple[JsonObject, ...] = tuple({"role": "user", "content": f"{number} " * 20} for number in range(100))
    request = ModelRequest(model="m", messages=messages)
    assert one.body(request) == writer().body(request) == one.body(request)
    assert one.cached_bytes <= 1_000


@pytest.mark.parametrize(
    ("refusal", "option"),
    [
        ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning"),
        ("body.reasoning: Extra inputs are not permitted", "reasoning"),
        ("Unknown parameter: 'store'", "store"),
        ("Encrypted content is not supported with this model.", "include"),
    ],
)
def test_an_option_that_the_responses_api_refuses_is_left_out_and_learned_once(refusal: str, option: str):
    one = ResponsesEncoder(provider="p", model_prefix="", tokens_key="max_output_tokens")
    request = ModelRequest(model="m", messages=(QUESTION,), options=ModelOptions(effort="high"))
    before = json.loads(one.body(request))
    assert one.adapt_to_refusal(request, refusal)
    del before[option]
    assert json.loads(one.body(request)) == before
    assert not one.adapt_to_refusal(request, refusal)


@pytest.mark.parametrize("option", ["temperature", "reasoning_effort", "cache_control"])
def test_a_request_that_does_not_change_is_not_sent_again(option: str):
    one = writer()
    request = ModelRequest(model="claude", messages=(QUESTION,), temperature=1, options=ModelOptions(effort="low"))
    assert one.adapt_to_refusal(request, f"Unsupported parameter: '{option}'")
    assert not one.adapt_to_refusal(request, f"Unsupported parameter: '{option}'")
