"""Calls in bare JSON at the beginning of an answer: run if they fit a tool, and not shown."""

import pytest

from core.dialects.dialect import CallComplete
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.ports import TextDelta
from tests.unit.core.dialects.test_call_formats import ARGUMENTS, JSON_CALL, TOOLS, called, outcome, shown


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (JSON_CALL, 1),
        (f" \n[{JSON_CALL}, {JSON_CALL}]\n", 2),
        (f"{JSON_CALL}<|eom_id|>", 1),
        (f"{JSON_CALL}; {JSON_CALL};", 2),
        (f"{JSON_CALL}\n\n{JSON_CALL},\n{JSON_CALL}\n<|eom_id|>", 3),
        ('{"type": "function", "name": "echo", "parameters": {"text": "a", "count": 2}}', 1),
        (f'{{"type": "function", "function": {JSON_CALL}}}', 1),
        ('{"name": "functions.echo", "arguments": {"text": "a", "count": 2}}', 1),
        ('{"name": "Echo", "parameters": "{\\"text\\": \\"a\\", \\"count\\": 2}"}', 1),
        ('{"tool": "echo", "args": {"text": "a", "count": 2}}', 1),
        ('{"tool_name": "echo", "input": {"text": "a", "count": 2}}', 1),
        ('{"action": "echo", "action_input": {"text": "a", "count": 2}}', 1),
        ('{"function": "echo", "parameters": {"text": "a", "count": 2}}', 1),
        (f'{{"function_call": {JSON_CALL}}}', 1),
        (f'{{"tool_call": {JSON_CALL}}}', 1),
        (f'{{"tool_calls": [{JSON_CALL}, {{"id": "1", "function": {JSON_CALL}}}]}}', 2),
    ],
)
def test_an_answer_that_is_nothing_but_json_calls_is_run(text: str, calls: int) -> None:
    assert outcome(text) == outcome(*text) == ("", [("echo", ARGUMENTS)] * calls)


@pytest.mark.parametrize("nothing", ["null", "{}", "[]", '""', '"{}"', '"null"'])
@pytest.mark.parametrize("around", ["{}", "<tool_call>{}</tool_call>", "[TOOL_CALLS][{}]"])
def test_no_arguments_may_be_written_in_any_way(nothing: str, around: str) -> None:
    call = around.replace("{}", f'{{"name": "list_commands", "arguments": {nothing}}}')
    assert outcome(call) == outcome(*call) == ("", [("list_commands", {})])


NARRATION = "Now I wait for its output. Its `count` is 2."


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"{JSON_CALL}\n{NARRATION}", 1),
        (f"\n{JSON_CALL};\n{JSON_CALL}\n\n{NARRATION}", 2),
        (f"[{JSON_CALL},\n {JSON_CALL}]\n{NARRATION}", 2),
        (f"{JSON_CALL}\n</tool_call>\n{NARRATION}", 1),
        (f"{JSON_CALL}\n{NARRATION}\n<tool_call>{JSON_CALL}</tool_call>", 2),
    ],
)
def test_json_calls_before_words_are_run_and_only_the_words_are_shown(
    dialect: NativeDialect | XmlDialect | ReactDialect, text: str, calls: int
) -> None:
    for pieces in ([text], text):
        parser = dialect.parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert (shown(found).strip(), called(found)) == (NARRATION, [("echo", ARGUMENTS)] * calls)


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{JSON_CALL}\n```\n{NARRATION}",
        f'{{"name": "unknown", "arguments": {{}}}}\n{NARRATION}',
        f'{{"name": "echo", "arguments": {{"other": 1}}}}\n{NARRATION}',
        f'{{"name": "echo", "count": 2}}\n{NARRATION}',
        '{"action": "echo", "input": "a"}',
        '{"action": "build", "input": {"text": "a"}}',
        f'{{"tool_calls": [{JSON_CALL}], "total": 1}}',
        f'{{"tool_calls": [{JSON_CALL}, {{"name": "Ann"}}]}}',
        '{"tool_calls": []}',
        f"{NARRATION}\n{JSON_CALL}\n{NARRATION}",
    ],
)
def test_other_json_before_words_stays_text(text: str) -> None:
    assert outcome(text) == outcome(*text) == (text, [])


def test_half_a_call_in_bare_json_is_not_shown() -> None:
    for whole in ("", f"{JSON_CALL}; "):
        half = f"{whole}{JSON_CALL[:40]}"
        assert outcome(half, is_whole=False) == ("", [])
        text, (*run, (name, _)) = outcome(half)
        assert (text, run, name) == ("", [("echo", ARGUMENTS)] if whole else [], "")


CUT = "cut off here"
FORMS = [
    JSON_CALL,
    f"[{JSON_CALL}]",
    f'{{"function": {JSON_CALL}}}',
    f'{{"type": "function", "function": {JSON_CALL}}}',
    f'{{"id": "call_1", "type": "function", {JSON_CALL[1:]}',
    '{"name": "functions.echo", "parameters": {"text": "a\nb", "count": 2}}',
    '{"arguments": {"text": "a", "count": 2}, "name": "echo"}',
    '{"tool": "echo", "args": {"text": "a", "count": 2}}',
    f'{{"function_call": {JSON_CALL}}}',
]


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize("form", FORMS)
def test_a_call_in_bare_json_may_be_cut_anywhere(dialect: NativeDialect | XmlDialect | ReactDialect, form: str) -> None:
    for size in range(form.index('"') + 2, len(form.rstrip("]}"))):
        for pieces in ([form[:size]], form[:size]):
            parser = dialect.parser(TOOLS)
            found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
            found += parser.close(is_whole=False, cut=CUT)
            (call,) = [part.call for part in found if isinstance(part, CallComplete)]
            assert (shown(found), call.problem, call.arguments) == ("", CUT, {})
            assert (parser.raw_answer, len(found)) == ("" if dialect.name == "native" else form[:size], 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Bob", "arg',
        '{"name": "Bob"',
        '{"name": "echo", "age": 3',
        '{"type": "object", "properties": {"te',
        '{"id": 7, "title": "The name',
        '{"arguments": {"other": 1',
        "{",
    ],
)
def test_other_json_that_was_cut_stays_text(text: str) -> None:
    for pieces in ([text], text):
        parser = NativeDialect().parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=False, cut=CUT)
        assert (shown(found), called(found)) == (text, [])
