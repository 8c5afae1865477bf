"""Calls that a model with native tool calls writes into its text: run if they are ours, never shown."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.dialect import CallComplete, DisplayText, ParsedPart, ToolSpec
from core.dialects.native import NativeDialect
from core.domain.messages import JsonObject
from core.ports import TextDelta, ToolCallDelta

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
}
TOOLS = {
    name: ToolSpec(name=name, description="", parameters=SCHEMA)
    for name in ("echo", "list_commands")
}
JSON_CALL = '{"name": "echo", "arguments": {"text": "a", "count": 2}}'
MARKUP = re.compile(r"<[^ ]|\[TOOL|[｜|]")


def parsed(*deltas: TextDelta | ToolCallDelta, is_whole: bool = True) -> list[ParsedPart]:
    parser = NativeDialect().parser(TOOLS)
    found = [one for delta in deltas for one in parser.feed(delta)]
    found += parser.close(is_whole=is_whole)
    assert parser.raw_text == shown(found)
    return found


def shown(found: list[ParsedPart]) -> str:
    return "".join(one.text for one in found if isinstance(one, DisplayText))


def called(found: list[ParsedPart]) -> list[tuple[str, JsonObject]]:
    return [(one.call.name, one.call.arguments) for one in found if isinstance(one, CallComplete)]


WRITTEN = [
    '<function_calls>\n<invoke name="echo">\n<parameter name="text">a</parameter>\n'
    '<parameter name="count">2</parameter>\n</invoke>\n</function_calls>',
    '<invoke name="echo"><parameter name="text">a</parameter><parameter name="count">2</parameter></invoke>',
    '<minimax:tool_call>\n<invoke name="echo">\n<parameter name="text">a</parameter>\n'
    '<parameter name="count">2</parameter>\n</invoke>\n</minimax:tool_call>',
    f"<tool_call>\n{JSON_CALL}\n</tool_call>",
    f"<tool_call>\n{JSON_CALL}",
    f"<tool_calls>[{JSON_CALL}]</tool_calls>",
    '<function_call>{"name": "echo", "arguments": "{\\"text\\": \\"a\\", \\"count\\": 2}"}</function_call>',
    '<function=echo>{"text": "a", "count": 2}</function>',
    "<tool_call>\n<function=echo>\n<parameter=text>\na\n</parameter>\n<parameter=count>\n2\n</parameter>\n"
    "</function>\n</tool_call>",
    "<tool_call>echo\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n<arg_key>count</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    f"<|tool_call|>[{JSON_CALL}]",
    f"<|tool_call|>{JSON_CALL}<|/tool_call|>",
    f"<|python_tag|>{JSON_CALL}",
    f"[TOOL_CALLS][{JSON_CALL}]",
    '[TOOL_CALLS]echo[ARGS]{"text": "a", "count": 2}',
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.echo:0<|tool_call_argument_begin|>"
    '{"text": "a", "count": 2}<|tool_call_end|><|tool_calls_section_end|>',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>echo\n```json\n"
    '{"text": "a", "count": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
]  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN)
def test_a_call_in_text_is_run_and_not_shown(written: str) -> None:
    found = parsed(TextDelta(text=f"I look it up.\n{written}"))
    assert called(found) == [("echo", {"text": "a", "count": 2})]
    assert shown(found) == "I look it up.\n"


@settings(max_examples=60)
@given(st.sampled_from(WRITTEN), st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_the_pieces_of_the_stream_make_no_difference(written: str, sizes: list[int]) -> None:
    whole, deltas = f"Before `x` {written} ", list[TextDelta]()
    for size in (*sizes, len(whole)):
        deltas.append(TextDelta(text=whole[:size]))
        whole = whole[size:]
    found = parsed(*deltas)
    assert called(found) == [("echo", {"text": "a", "count": 2})]
    assert shown(found).strip() == "Before `x`"


@settings(max_examples=60)
@given(st.sampled_from(WRITTEN), st.data())
def test_half_a_call_is_neither_shown_nor_run_with_half_its_arguments(
    written: str, data: st.DataObject
) -> None:
    start = re.search(r"[<\[]\W?\w+\W*\w*[^\w\s]", written)
    assert start
    cut = data.draw(st.integers(start.end(), len(written) - 1))
    found = parsed(TextDelta(text=f"Well. {written[:cut]}"))
    assert shown(found).strip() == "Well."
    assert all(
        arguments in ({}, {"text": "a", "count": 2}, {"text": "a"})
        for _, arguments in called(found)
    )
    dropped = parsed(TextDelta(text=f"Well. {written[:cut]}"), is_whole=False)
    assert shown(dropped).strip() == "Well."


@pytest.mark.parametrize(
    "text",
    [
        "Qwen writes `<tool_call>` before a call.",
        f"```xml\n<tool_call>{JSON_CALL}</tool_call>\n```\nThat is the format.",
        "The <tool_call> tag is special, and so is a < b or [1].",
        "a <b> c [TODO] <function> x",
        "~~~\n<function_calls>\n~~~",
    ],
)
def test_text_about_calls_stays_text(text: str) -> None:
    found = parsed(*(TextDelta(text=one) for one in text))
    assert (shown(found), called(found)) == (text, [])


def test_what_cannot_be_read_is_told_to_the_model_and_not_shown() -> None:
    found = parsed(TextDelta(text="<tool_call>{'name': echo}</tool_call>"))
    (call,) = [one.call for one in found if isinstance(one, CallComplete)]
    assert call.problem is not None
    assert "call as text" in call.problem
    assert shown(found) == ""


def test_a_call_that_is_also_made_as_a_real_call_runs_once() -> None:
    arguments = '{"text": "a", "count": 2}'
    real = ToolCallDelta(index=0, call_id="c1", name="echo", arguments=arguments)
    found = parsed(TextDelta(text=f"<tool_call>{JSON_CALL}</tool_call>"), real)
    assert called(found) == [("echo", json.loads(arguments))]


def test_a_tool_without_arguments_and_several_calls_are_found() -> None:
    text = f"<tool_call>list_commands</tool_call>\n<tool_call>{JSON_CALL}</tool_call> done"
    found = parsed(TextDelta(text=text))
    assert [name for name, _ in called(found)] == ["list_commands", "echo"]
    assert [one.index for one in found if isinstance(one, CallComplete)] == [0, 1]
    assert shown(found).split() == ["done"]


@pytest.mark.parametrize("given", ["", "x" * 3000, "functions.echo:0", "call 1", "a\nb", "日本"])
def test_an_id_that_some_provider_refuses_is_replaced(given: str) -> None:
    found = parsed(ToolCallDelta(index=0, call_id=given, name="echo", arguments="{}"))
    (call,) = [one.call for one in found if isinstance(one, CallComplete)]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call.call_id)
    assert call.call_id != given
