import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.arguments import parse_arguments
from core.dialects.dialect import CallComplete, CallProgress, DisplayText, ParsedPart, ToolSpec
from core.dialects.native import NativeDialect
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta
from tests.fakes.cpu_seconds import seconds_of


def fed(deltas: Sequence[TextDelta | ToolCallDelta], *, is_whole: bool = True) -> list[ParsedPart]:
    parser = NativeDialect().parser({})
    found = [one for delta in deltas for one in parser.feed(delta)]
    return [*found, *parser.close(is_whole=is_whole)]


def calls(found: Sequence[ParsedPart]) -> list[ToolCall]:
    complete = [one for one in found if isinstance(one, CallComplete)]
    assert [one.index for one in complete] == list(range(len(complete)))
    return [one.call for one in complete]


def part(index: int, arguments: str = "", **known: str) -> ToolCallDelta:
    return ToolCallDelta(index=index, arguments=arguments, **known)


def test_a_call_is_put_together_and_text_passes_through():
    found = fed(
        [
            TextDelta(text="I "),
            part(0, call_id="c1", name="look"),
            part(0, '{"a"'),
            part(0, ": 1}"),
            TextDelta(text="see"),
        ]
    )
    assert [one.text for one in found if isinstance(one, DisplayText)] == ["I ", "see"]
    assert calls(found) == [ToolCall(name="look", arguments={"a": 1}, call_id="c1", raw='{"a": 1}')]


def test_a_call_is_complete_when_the_next_one_begins():
    parser = NativeDialect().parser({})
    parser.feed(part(0, '{"a": 1}', call_id="c1", name="look"))
    found = parser.feed(part(1, call_id="c2", name="wait"))
    assert [call.name for call in calls(found)] == ["look"]
    assert [one.call.arguments for one in parser.close(is_whole=True) if isinstance(one, CallComplete)] == [{}]


def test_missing_late_and_doubled_ids_and_names_are_coped_with():
    found = calls(
        fed(
            [
                part(0, '{"a": 1}', name="look"),
                part(1, '{"b": 2}'),
                part(1, name="wait", call_id="c"),
                part(2, "{}", name="wait", call_id="c"),
                part(3, '{"x": 1}', call_id="d"),
            ]
        )
    )
    assert [call.name for call in found] == ["look", "wait", "wait", ""]
    ids = [call.call_id for call in found]
    assert ids[1] == "c"
    assert len(set(ids)) == 4
    assert all(ids)
    assert found[3].problem is not None


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        (
            [
                *(part(0, call_id="c1", name="look"), part(1, call_id="c2", name="wait")),
                *(part(1, '{"s": '), part(0, '{"a": '), part(1, "2}"), part(0, "1}")),
            ],
            [("c1", "look", {"a": 1}), ("c2", "wait", {"s": 2})],
        ),
        (
            [part(0, '{"a": 1}', name="look", call_id="x"), part(0, '{"a": 2}', name="look", call_id="y")],
            [("x", "look", {"a": 1}), ("y", "look", {"a": 2})],
        ),
        (
            [
                *(part(0, '{"a": 1}', name="look"), part(0, '{"a": 2}', name="look"), part(0, "{}", name="wait")),
                *(part(0, '{"a": ', name="look"), part(0, "3}", name="look"), part(0, name="look")),
            ],
            [(None, "look", {"a": 1}), (None, "look", {"a": 2}), (None, "wait", {}), (None, "look", {"a": 3})],
        ),
        (
            [one for name in ("wait", "look", "done") for one in (part(0, name=name), part(0, '{"a": 1}'))],
            [(None, name, {"a": 1}) for name in ("wait", "look", "done")],
        ),
        ([part(0, "{", name="look", call_id="c"), part(0, "}", name="look", call_id="c")], [("c", "look", {})]),
        ([part(0, name="lo", call_id="c"), part(0, name="ok"), part(0, "{}")], [("c", "look", {})]),
        ([part(0, "{}", name="look", call_id="x"), part(0, '{"a": '), part(0, "1}")], [("x", "look", {"a": 1})]),
        (
            [part(0, name="look"), part(0, '{"a": '), part(0, "1}"), part(0, '{"a": 1}', name="look")],
            [(None, "look", {"a": 1})],
        ),
        (
            [part(0, '{"a": ', name="look"), part(0, '{"a": {"b": 1}}'), part(0, "}")],
            [(None, "look", {"a": {"a": {"b": 1}}})],
        ),
    ],
    ids=[
        *("interleaved", "all with the index 0", "without index and id", "names before arguments"),
        *("a name repeated", "a name in pieces", "an empty object first", "sent again", "no repetition"),
    ],
)
def test_calls_are_told_apart_and_put_together(
    deltas: list[ToolCallDelta], expected: list[tuple[str | None, str, dict[str, object]]]
):
    found = calls(fed(deltas))
    told = zip(found, expected, strict=True)
    assert [(row[0] and call.call_id, call.name, call.arguments) for call, row in told] == expected
    assert [call.problem for call in found] == [None] * len(expected)


def test_an_empty_object_before_the_arguments_does_not_complete_a_call():
    parser = NativeDialect().parser({})
    parser.feed(part(0, "{}", name="look", call_id="x"))
    assert calls(parser.feed(part(1, name="wait", call_id="y"))) == []


WHOLE = '{"path": "/x", "lines": [1, 2]}'


@pytest.mark.parametrize(
    "parts",
    [
        ['{"path": ', '"/x", "lines": [1, 2]}', WHOLE],
        ['{"path": ', '"/x", "lines": [1, 2]}', WHOLE, WHOLE],
        ["", '{"pa', WHOLE[:9], WHOLE[:14], WHOLE],
        [WHOLE[:9], WHOLE[:9] + '"/x"', WHOLE, WHOLE],
        [WHOLE[:20], WHOLE[:24], WHOLE],
        ["{}", WHOLE, WHOLE],
    ],
)
@pytest.mark.parametrize("more", [{}, {"name": "look", "call_id": "x"}])
def test_arguments_that_are_sent_again_count_once(parts: list[str], more: dict[str, str]):
    deltas = [part(0, parts[0], name="look", call_id="x")]
    found = fed([*deltas, *(part(0, one, **more) for one in parts[1:])])
    assert [(call.arguments, call.problem) for call in calls(found)] == [(json.loads(WHOLE), None)]


def test_arguments_that_grow_with_each_part_take_time_in_proportion_to_what_is_sent():
    whole = json.dumps({"text": "x" * 4_000})
    parts = [part(0, whole[:end], call_id="c", name="wait") for end in range(1, len(whole))]
    parts.append(part(0, whole))
    (call,) = calls(fed(parts))
    assert call.arguments == {"text": "x" * 4_000}
    assert seconds_of(lambda: fed(parts), seconds_max=0.5) < 0.5


def test_an_interrupted_answer_loses_its_half_call_and_keeps_whole_ones():
    deltas = [TextDelta(text="Hm."), part(0, '{"a": 1}', name="look"), part(1, '{"path": "/x', name="wait")]
    found = fed(deltas, is_whole=False)
    assert [call.name for call in calls(found)] == ["look"]


def test_unreadable_arguments_are_a_problem_for_the_model():
    (call,) = calls(fed([part(0, '{"contents": "half of a fi', name="create_file")]))
    assert call.arguments == {}
    assert call.problem is not None
    assert "JSON" in call.problem
    (listed,) = calls(fed([part(0, "[1]", name="create_file")]))
    assert listed.problem is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ('{"a": ",}"}', {"a": ",}"}),
        ('{"a": ",}",}', {"a": ",}"}),
        ('{"a": {"b": "c"', {"a": {"b": "c"}}),
        ('{"a": 1,', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        (json.dumps('{"a": 1}'), {"a": 1}),
    ],
)
def test_arguments_are_mended_once(text: str, expected: object):
    assert parse_arguments(text) == expected


@pytest.mark.parametrize("text", ['{"a": "b', '{"a": NaN}', "[]", "7", "{" * 100_000])
def test_what_would_be_a_guess_is_not_mended(text: str):
    with pytest.raises(ValueError, match="Nothing was run"):
        parse_arguments(text)


VALUES = st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.none() | st.lists(st.booleans()))


@settings(deadline=None)
@given(arguments=st.lists(VALUES, min_size=1, max_size=4), picks=st.lists(st.integers(0, 999), max_size=9))
def test_cutting_calls_anywhere_changes_nothing(arguments: list[dict[str, object]], picks: list[int]):
    deltas: list[ToolCallDelta] = []
    for index, values in enumerate(arguments):
        text = json.dumps(values)
        cuts = sorted({pick % (len(text) + 1) for pick in picks})
        deltas.append(part(index, call_id=f"c{index}", name="look"))
        for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
            deltas.append(part(index, text[start:end]))
    found = calls(fed(deltas))
    assert [(call.call_id, call.arguments) for call in found] == [
        (f"c{index}", values) for index, values in enumerate(arguments)
    ]


def test_progress_is_told_with_all_arguments_so_far_and_stays_linear():
    text = json.dumps({"contents": "x" * 50_000})
    deltas = [part(0, text[start : start + 4]) for start in range(0, len(text), 4)]
    found = fed([part(0, name="create_file", call_id="c"), *deltas])
    told = [one.arguments for one in found if isinstance(one, CallProgress)]
    assert told[0] == ""
    assert all(text.startswith(one) for one in told)
    assert len(told[-1]) > len(text) * 0.8
    assert sum(map(len, told)) < 12 * len(text)


def test_what_is_stored_is_always_acceptable_to_a_provider():
    dialect = NativeDialect()
    bad = ToolCall(name="a.b c", arguments={}, call_id="c1", raw='{"x', problem="Broken.")
    content = dialect.assistant_content("", [bad])
    assert content["content"] is None
    assert content["tool_calls"] == [{"id": "c1", "type": "function", "function": {"name": "a_b_c", "arguments": "{}"}}]
    assert dialect.assistant_content("Hi", []) == {"role": "assistant", "content": "Hi", "tool_calls": None}


def test_a_result_is_an_envelope_that_answers_its_call():
    call = ToolCall(name="create_file", arguments={"a": 1}, call_id="c1")
    result = {"success": True, "output": "ok", "error": None}
    content = NativeDialect().result_content(call, result)
    assert (content["role"], content["tool_call_id"], content["name"]) == ("tool", "c1", "create_file")
    assert json.loads(str(content["content"])) == {
        "tool_execution": {
            "function_name": "create_file",
            "xml_tag_name": "create-file",
            "tool_call_id": "c1",
            "arguments": {"a": 1},
            "result": result,
        }
    }


def test_tools_are_offered_as_schemas():
    spec = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
    schemas, text = NativeDialect().request_parts([spec])
    assert text == ""
    assert schemas[0]["function"] == {"name": "look", "description": "Looks.", "parameters": spec.parameters}
