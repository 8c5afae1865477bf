"""The ReAct dialect: what of an answer is a call, what people see, and that cutting it anywhere changes nothing."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.dialect import CallComplete, DisplayText, ToolSpec
from core.dialects.react import ReactDialect
from core.dialects.selection import select_dialect
from core.domain.messages import ToolCall
from core.ports import TextDelta
from tests.fakes.streamed_model import pieces
from tests.fakes.streamed_model import text as answer
from tests.integration.core.conftest import World

TOOLS = {"look": ToolSpec(name="look", description="Look.", parameters={"type": "object"})}


def read(
    text: str, *, cuts: Iterable[int] = (), is_whole: bool = True, calls_max: int = 0, limit: str = ""
) -> tuple[str, list[ToolCall], str]:
    parser = ReactDialect().parser(TOOLS, calls_max=calls_max)
    ends = [0, *cuts, len(text)]
    parsed = [item for start, end in pairwise(ends) for item in parser.feed(TextDelta(text=text[start:end]))]
    parsed.extend(parser.close(is_whole=is_whole, cut=limit))
    visible = "".join(item.text for item in parsed if isinstance(item, DisplayText))
    return (visible, [item.call for item in parsed if isinstance(item, CallComplete)], parser.raw_answer)


def shape(found: tuple[str, list[ToolCall], str]) -> object:
    visible, calls, text = found
    return visible, [(one.name, one.arguments, one.raw, one.problem) for one in calls], text


def named(calls: Sequence[ToolCall]) -> list[tuple[str, dict[str, object]]]:
    return [(one.name, dict(one.arguments)) for one in calls]


def test_a_thought_and_an_action_are_a_call_and_nothing_for_people() -> None:
    text = 'Thought: look first\nAction: read_file\nAction Input: {"path": "a"}'
    visible, calls, stored = read(text)
    assert visible == ""
    assert named(calls) == [("read_file", {"path": "a"})]
    assert calls[0].raw == 'Action: read_file\nAction Input: {"path": "a"}'
    assert stored == text


@pytest.mark.parametrize(
    "text",
    [
        'Thought: look first\n```\nAction: look\nAction Input: {"path": "a"}\n```\n',
        'thought: look first\naction: look\naction input: {"path": "a"}',
        '**THOUGHT:** look first\n**ACTION:** look\n**Action input:** {"path": "a"}',
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_labels_in_a_fence_and_in_other_letters_are_labels(text: str, step: int) -> None:
    visible, calls, _ = read(text, cuts=range(step, len(text), step))
    assert visible == ""
    assert named(calls) == [("look", {"path": "a"})]


def test_an_action_in_a_fence_that_names_no_tool_is_text() -> None:
    text = "Final Answer: Like this:\n```\nAction: name the tool\n```"
    assert read(f"So:\n{text.partition(' ')[2]}")[1] == []


def test_only_the_final_answer_is_shown() -> None:
    assert read("Thought: I know.\nFinal Answer: It is **42**.\nAction: is a word here.")[:2] == (
        "It is **42**.\nAction: is a word here.",
        [],
    )


def test_an_observation_that_the_model_made_up_is_left_unread() -> None:
    text = 'Action: a\nAction Input: {}\nObservation: {"x": 1}\nThought: fine\nFinal Answer: lie'
    visible, calls, stored = read(text)
    assert (visible, named(calls)) == ("", [("a", {})])
    assert stored == "Action: a\nAction Input: {}"


def test_a_final_answer_that_does_not_wait_for_the_result_is_left_unread() -> None:
    visible, calls, _ = read("Action: a\nAction Input: {}\nFinal Answer: a guess")
    assert (visible, named(calls)) == ("", [("a", {})])


def test_a_call_is_complete_with_its_last_bracket() -> None:
    parser = ReactDialect().parser({})
    assert not parser.feed(TextDelta(text='Action: a\nAction Input: {"b": {"c": "}"}'))
    assert len(parser.feed(TextDelta(text="}"))) == 1


def test_labels_in_a_value_are_part_of_the_value() -> None:
    text = 'Action: a\nAction Input: {"text": "\nObservation: no\nFinal Answer: no"}'
    assert named(read(text)[1]) == [("a", {"text": "\nObservation: no\nFinal Answer: no"})]


def test_input_that_is_no_json_comes_back_as_a_problem() -> None:
    for bad in ("hello", '{"a": "b', '["a"]'):
        (call,) = read(f"Action: a\nAction Input: {bad}")[1]
        assert call.problem, bad
        assert call.arguments == {}


def test_an_action_without_input_has_no_arguments() -> None:
    assert named(read("Action: list_commands")[1]) == [("list_commands", {})]
    assert named(read("Action: list_commands\nAction Input:\n")[1]) == [("list_commands", {})]


def test_an_input_without_an_action_is_told_to_the_model() -> None:
    (call,) = read('Thought: x\nAction Input: {"a": 1}')[1]
    assert call.problem == "An Action line must name the tool. Nothing was run."


def test_other_ways_to_write_it_are_understood() -> None:
    for text in (
        '**Action:** `a`\n**Action Input:** {"b": 1}',
        '  Action : a\n  Action Input : {"b": 1}',
        'Action: a\nAction Input:\n```json\n{"b": 1}\n```\n',
        'Action: a\n{"b": 1}',
        '### Action: "a"\n### Action Input:\n\n{"b": 1}',
    ):
        visible, calls, _ = read(text)
        assert (visible, named(calls)) == ("", [("a", {"b": 1})]), text


def test_several_actions_are_several_calls_up_to_the_limit() -> None:
    text = "Action: a\nAction Input: {}\nAction: b\nAction Input: {}"
    assert named(read(text)[1]) == [("a", {}), ("b", {})]
    assert named(read(text, calls_max=1)[1]) == [("a", {})]


def test_an_action_in_a_code_fence_is_text() -> None:
    text = "This is how it looks:\n```\nAction: a\nAction Input: {}\n```\nNothing else."
    visible, calls, _ = read(text)
    assert (visible, calls) == (text, [])


def test_thoughts_alone_are_shown_after_all() -> None:
    assert read("Thought: Hello there.")[0] == "Hello there."


def test_a_call_that_a_limit_has_cut_off_is_told_to_the_model() -> None:
    text = 'Thought: look first\nAction: look\nAction Input: {"path": "a", "count": 2'
    for size in range(text.index("look\nAction") + len("look\n"), len(text)):
        visible, calls, stored = read(text[:size], is_whole=False, limit="too long")
        assert [(call.name, call.arguments, call.problem) for call in calls] == [("look", {}, "too long")], text[:size]
        assert (visible, stored.strip()) == ("", text[:size].strip())


def test_a_half_written_call_of_an_interrupted_answer_vanishes() -> None:
    visible, calls, stored = read('Thought: a\nAction: b\nAction Input: {"c"', is_whole=False)
    assert (visible, calls, stored) == ("a", [], "Thought: a")


PARTS = st.sampled_from(
    [
        "Thought:",
        "Action:",
        "Action Input:",
        "Observation:",
        "Final Answer:",
        "**Action:**",
        "**Action**:",
        "# Action:",
        "\n",
        "\n\n",
        " ",
        "         ",
        "\t",
        "{",
        "}",
        '{"a": 1}',
        '"',
        "\\",
        "```json\n",
        "```",
        "`",
        "**",
        "Act",
        "é🙂",
        "name",
    ]
)
ANSWERS = st.lists(PARTS | st.text(max_size=4), max_size=24).map("".join)


@given(text=ANSWERS, picks=st.lists(st.integers(0, 10_000), max_size=12), is_whole=st.booleans())
def test_cutting_an_answer_anywhere_changes_nothing(text: str, picks: list[int], is_whole: bool) -> None:
    cuts = sorted({select_dialect % (len(text) + 1) for select_dialect in picks})
    whole = shape(read(text, is_whole=is_whole))
    assert shape(read(text, cuts=cuts, is_whole=is_whole)) == whole
    assert shape(read(text, cuts=range(1, len(text)), is_whole=is_whole)) == whole


@settings(deadline=None)
@given(arguments=st.dictionaries(st.text(max_size=5), st.text(max_size=20) | PARTS, max_size=4))
def test_any_arguments_come_back(arguments: dict[str, str]) -> None:
    text = f"Thought: x\nAction: a\nAction Input: {json.dumps(arguments)}\nObservation: y"
    assert named(read(text)[1]) == [("a", arguments)]


def test_a_large_answer_in_small_pieces_takes_linear_time() -> None:
    value = "line\\n" * 40_000
    text = f'Thought: {"x" * 50_000}\nAction: a\nAction Input: {{"text": "{value}"}}'
    start = process_time()
    (call,) = read(text, cuts=range(4, len(text), 4))[1]
    assert len(str(call.arguments["text"])) == 200_000
    assert process_time() - start < 5


def test_the_prompt_explains_and_shows_every_tool() -> None:
    tool = ToolSpec(
        name="read_file",
        description="Reads.",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}},
        example={"path": "a.txt"},
    )
    schemas, prompt = ReactDialect().request_parts([tool])
    assert schemas == ()
    assert 'Action: read_file\nAction Input: {"path": "a.txt"}' in prompt
    assert ReactDialect().request_parts([]) == ((), "")


def test_the_setting_picks_it() -> None:
    assert select_dialect("any", "react").name == "react"


async def test_a_run_goes_from_action_to_observation_to_final_answer(world: World) -> None:
    world.with_deps(dialect=ReactDialect())
    first = 'Thought: I will.\nAction: echo\nAction Input: {"text": "a"}\nObservation: made up'
    world.model.turns = [answer(*pieces(first)), answer(*pieces("Thought: Done.\nFinal Answer: It said a."))]
    run_id = await world.run("go")
    assert world.bench.said == ["a"]
    first_request, second = world.model.requests
    assert first_request.stop_sequences == ("\nObservation:",)
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]
    assert "made up" not in str(second.messages)
    assert (await world.read_end(run_id)).reply.text == "It said a."
