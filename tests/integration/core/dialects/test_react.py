"""The ReAct dialect: what of an answer is a call, what people see, and that cutting it anywhere changes nothing."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.dialect import CallComplete, DisplayText, ToolSpec
from core.dialects.react import ReactDialect
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


Called = list[tuple[str, dict[str, object]]]


def named(calls: Sequence[ToolCall]) -> Called:
    return [(one.name, dict(one.arguments)) for one in calls]


LOOK: Called = [("look", {"path": "a"})]
NONE: Called = [("a", {})]
ONE: Called = [("a", {"b": 1})]
IN_A_FENCE = "This is how it looks:\n```\nAction: a\nAction Input: {}\n```\nNothing else."


@pytest.mark.parametrize(
    ("text", "visible", "called"),
    [
        ('Thought: look first\n```\nAction: look\nAction Input: {"path": "a"}\n```\n', "", LOOK),
        ('thought: look first\naction: look\naction input: {"path": "a"}', "", LOOK),
        ('**THOUGHT:** look first\n**ACTION:** look\n**Action input:** {"path": "a"}', "", LOOK),
        ("Final Answer: It is **42**.\nAction: is a word here.", "It is **42**.\nAction: is a word here.", []),
        ('Action: a\nAction Input: {}\nObservation: {"x": 1}\nThought: fine\nFinal Answer: lie', "", NONE),
        ("Action: a\nAction Input: {}\nFinal Answer: a guess", "", NONE),
        ("Action: a\nAction Input:\n", "", NONE),
        ('**Action:** `a`\n**Action Input:** {"b": 1}', "", ONE),
        ('  Action : a\n  Action Input : {"b": 1}', "", ONE),
        ('Action: a\nAction Input:\n```json\n{"b": 1}\n```\n', "", ONE),
        ('Action: a\n{"b": 1}', "", ONE),
        ('### Action: "a"\n### Action Input:\n\n{"b": 1}', "", ONE),
        ("Action: a\nAction Input: {}\nAction: b\nAction Input: {}", "", [*NONE, ("b", {})]),
        (IN_A_FENCE, IN_A_FENCE, []),
        ("Thought: Hello there.", "Hello there.", []),
    ],
)
def test_some_of_an_answer_is_a_call_and_some_is_for_people(text: str, visible: str, called: Called) -> None:
    shown, calls, _ = read(text)
    assert (shown, named(calls)) == (visible, called)


def test_a_call_is_stored_as_it_was_written_and_what_follows_it_is_not() -> None:
    text = 'Thought: look first\nAction: read_file\nAction Input: {"path": "a"}'
    _, calls, stored = read(f"{text}\nObservation: made up")
    assert (calls[0].raw, stored) == (text.partition("\n")[2], text)


def test_labels_in_a_value_are_part_of_the_value() -> None:
    text = 'Action: a\nAction Input: {"text": "\nObservation: no\nFinal Answer: no"}'
    assert named(read(text)[1]) == [("a", {"text": "\nObservation: no\nFinal Answer: no"})]


def test_input_that_is_no_json_comes_back_as_a_problem() -> None:
    for bad in ("hello", '{"a": "b', '["a"]'):
        (call,) = read(f"Action: a\nAction Input: {bad}")[1]
        assert call.problem, bad
        assert call.arguments == {}


def test_an_input_without_an_action_is_told_to_the_model() -> None:
    (call,) = read('Thought: x\nAction Input: {"a": 1}')[1]
    assert call.problem == "An Action line must name the tool. Nothing was run."


def test_calls_over_the_limit_are_left_unread() -> None:
    text = "Action: a\nAction Input: {}\nAction: b\nAction Input: {}"
    assert named(read(text, calls_max=1)[1]) == [("a", {})]


def test_a_call_that_a_limit_has_cut_off_is_told_to_the_model() -> None:
    text = 'Thought: look first\nAction: look\nAction Input: {"path": "a", "count": 2'
    for size in range(text.index("look\nAction") + len("look\n"), len(text)):
        visible, calls, stored = read(text[:size], is_whole=False, limit="too long")
        assert [(call.name, call.arguments, call.problem) for call in calls] == [("look", {}, "too long")], text[:size]
        assert (visible, stored.strip()) == ("", text[:size].strip())


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


def test_a_large_answer_in_small_pieces_takes_linear_time() -> None:
    value = "line\\n" * 40_000
    text = f'Thought: {"x" * 50_000}\nAction: a\nAction Input: {{"text": "{value}"}}'
    start = process_time()
    (call,) = read(text, cuts=range(4, len(text), 4))[1]
    assert len(str(call.arguments["text"])) == 200_000
    assert process_time() - start < 5


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
