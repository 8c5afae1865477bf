"""Which messages are cut, how, and in which order."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.context.tokens import count_message
from core.context.truncation import Cut, fit_messages, truncate_message
from core.domain.json import JsonObject
from core.domain.messages import REASONING_KEY, Message
from tests.support.conversations import answered, call_and_result, long_thread, message, said, words


def total(messages: list[Message]) -> int:
    return sum(one.token_count for one in messages)


def cut_indexes(messages: list[Message], room: int) -> list[int]:
    made = fit_messages(messages, room, {}).made
    return [index for index, one in enumerate(messages) if one.message_id in made]


def test_what_fits_is_sent_as_it_is() -> None:
    messages = list(long_thread(3, words_each=50))
    fitted = fit_messages(messages, total(messages), {})
    assert fitted.contents == tuple(one.content for one in messages)
    assert not fitted.made
    assert not fitted.is_over


def conversation() -> list[Message]:
    """Two messages of each kind, all well over the first limit."""
    return [
        said(words(9000)),
        *call_and_result(1, argument=words(9000), output=words(9000)),
        *call_and_result(2, argument=words(9000), output=words(9000)),
        said(words(9000)),
    ]


@pytest.mark.parametrize(
    ("steps", "indexes"), [(1, [2]), (3, [2, 4]), (4, [1, 2, 4]), (5, [1, 2, 3, 4]), (6, [0, 1, 2, 3, 4])]
)
def test_tools_are_cut_first_then_the_agent_then_the_people_each_oldest_first(steps: int, indexes: list[int]) -> None:
    messages = conversation()
    sizes = [one.token_count for one in messages]
    order = [2, 4, 1, 3, 0, 5]
    saved = sum(sizes[index] - 4096 for index in order[: steps - 1])
    room = int((total(messages) - saved - 1000) / 0.9)
    assert cut_indexes(messages, min(room, total(messages) - 1)) == indexes


def test_older_results_are_cut_together_and_the_newest_stay_whole() -> None:
    messages = [said("go")]
    for number in range(20):
        messages += call_and_result(number, argument="ls", output=words(2000, seed=number))
    room = total(messages) - 100
    fitted = fit_messages(messages, room, {})
    cut = [index for index, one in enumerate(messages) if one.message_id in fitted.made]
    assert cut == list(range(2, cut[-1] + 1, 2))
    assert total(messages[cut[-1] + 1 :]) <= room // 4 + messages[-1].token_count
    assert 0.3 * room < fitted.tokens <= 0.36 * room


def test_the_last_cut_goes_only_as_far_as_it_must() -> None:
    messages = [said("go"), *call_and_result(1, argument="ls", output=words(30_000))]
    room = total(messages) - 100
    fitted = fit_messages(messages, room, {})
    assert 0.8 * room < fitted.tokens <= room


def test_the_limit_is_halved_until_it_fits() -> None:
    messages = list(long_thread(100, words_each=900))
    room = total(messages) // 3
    fitted = fit_messages(messages, room, {})
    assert not fitted.is_over
    assert 0.7 * room <= fitted.tokens <= room


def test_no_message_is_cut_under_256_tokens_and_then_it_is_said_that_it_does_not_fit() -> None:
    messages = list(long_thread(40, words_each=900))
    fitted = fit_messages(messages, 1000, {})
    assert fitted.is_over
    assert all(cut.tokens >= 256 for cut in fitted.made.values())
    assert len(fitted.contents) == len(messages)


def test_a_cut_result_keeps_its_start_and_its_end() -> None:
    texts = ["START " + words(8000, seed=number) + " END" for number in range(2)]
    messages = [said("go")]
    for number, text in enumerate(texts):
        messages += call_and_result(number, argument="ls", output=text)
    fitted = fit_messages(messages, 7000, {})
    for index in (2, 4):
        result = json.loads(str(fitted.contents[index]["content"]))["tool_execution"]
        output = result["result"]["output"]
        assert output.startswith("START")
        assert output.endswith("END")
        assert f'expand_message with message_id "{messages[index].message_id}"' in output


def test_a_cut_stays_cut_and_the_same() -> None:
    messages = list(long_thread(20, words_each=2000))
    first = fit_messages(messages, 30_000, {})
    again = fit_messages([*messages, said("and now?")], 30_000, first.shown)
    assert not again.made
    assert again.contents[: len(messages)] == first.contents


def test_what_is_sent_follows_from_the_message_and_the_cut_alone() -> None:
    _, result = call_and_result(1, argument="ls", output=words(5000))
    cut = Cut(tokens=512)
    assert truncate_message(result, cut) == truncate_message(result, cut)


def test_a_message_that_is_shorter_than_its_cut_stays_whole() -> None:
    # it was longer in the form that another model receives
    call, result = call_and_result(1, argument="ls", output=words(900))
    for whole in (call, result, said(words(900))):
        assert truncate_message(whole, Cut(tokens=whole.token_count + 40)).content == whole.content


def calls_in(content: JsonObject) -> list[Any]:
    calls: Any = content.get("tool_calls")
    return calls or []


def test_calls_and_results_stay_together() -> None:
    messages = list(long_thread(50, words_each=900))
    contents = fit_messages(messages, 25_000, {}).contents
    called = [call["id"] for one in contents for call in calls_in(one)]
    assert called == [one["tool_call_id"] for one in contents if one["role"] == "tool"]
    assert len(called) == 50


def test_the_arguments_of_a_cut_call_are_still_an_object() -> None:
    messages = [said("go"), *call_and_result(1, argument=words(9000), output="ok")]
    contents = fit_messages(messages, 3000, {}).contents
    function = calls_in(contents[1])[0]["function"]
    assert list(json.loads(function["arguments"])) == ["command"]


def test_results_that_are_no_text_are_cut_too() -> None:
    rows = [{"row": number, "name": "alice"} for number in range(3000)]
    messages = [said("go"), *call_and_result(1, argument="ls", output=rows)]
    fitted = fit_messages(messages, 2000, {})
    assert not fitted.is_over
    envelope = json.loads(str(fitted.contents[2]["content"]))
    assert str(envelope["tool_execution"]["result"]["output"]).startswith('[{"row": 0')


def test_what_only_begins_like_a_result_is_cut_as_text() -> None:
    fitted = fit_messages([said('{"tool_execution": ' + "[" * 100_000)], 2000, {})
    assert not fitted.is_over


def test_pictures_stay_beside_a_text_that_is_cut() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    parts = [{"type": "text", "text": words(9000)}, image]
    messages = [message("user", {"role": "user", "content": parts}), answered("ok")]
    content = fit_messages(messages, 4000, {}).contents[0]["content"]
    assert isinstance(content, list)
    assert content[1] == image


TEXTS = st.text(max_size=400).flatmap(lambda text: st.integers(1, 60).map(lambda times: text * times))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), st.integers(min_value=300, max_value=20_000))
def test_whatever_is_cut_stays_valid_and_is_counted_right(turns: list[tuple[str, str]], room: int) -> None:
    messages = [said("go")]
    for number, (argument, output) in enumerate(turns):
        messages += call_and_result(number, argument=argument, output=output)
    fitted = fit_messages(messages, room, {})
    assert fitted.is_over == (fitted.tokens > room)
    assert fitted.tokens == sum(count_message(one) for one in fitted.contents)
    for content in fitted.contents:
        if content["role"] == "tool":
            assert set(json.loads(str(content["content"]))) == {"tool_execution"}


def reasoned(number: int) -> list[Message]:
    call, result = call_and_result(number, argument=words(9000), output="ok")
    return [message("assistant", {**call.content, REASONING_KEY: {"fields": "x"}}), result]


def test_a_cut_message_keeps_its_reasoning_only_in_the_turns_since_the_newest_request() -> None:
    asked = replace(said("b"), run_id="next")
    messages = [said("a"), *reasoned(1), asked, *reasoned(2), *reasoned(3)]
    fitted = fit_messages(messages, 3_000, {})
    kept = [REASONING_KEY in one for one in fitted.contents if one["role"] == "assistant"]
    assert kept == [False, True, True]
    # a later request does not change what an earlier one has decided
    later = fit_messages([*messages, said("c")], 3_100, fitted.shown)
    assert later.contents[:-1] == fitted.contents
