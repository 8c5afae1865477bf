"""Calls in text that are written half, inside other objects or in a single tag, and the text around them."""

import pytest

from core.dialects.call_formats import UNREADABLE
from core.dialects.dialect import CallComplete
from core.dialects.native import NativeDialect
from core.dialects.react import ReactDialect
from core.dialects.xml import XmlDialect
from core.ports import TextDelta
from tests.unit.core.dialects.test_written_calls import ARGUMENTS, JSON_CALL, TOOLS, WRITTEN, called, outcome, shown


@pytest.mark.parametrize("call", [f'{{"tool_calls": [{JSON_CALL}]}}', f'{{"function_call": {JSON_CALL}}}'])
def test_calls_between_marks_may_stand_in_one_more_object(call: str) -> None:
    written = f"<tool_call>{call}</tool_call>"
    assert outcome(written) == outcome(*written) == ("", [("echo", ARGUMENTS)])


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize("end", ["/>", " />"])
def test_text_after_a_call_that_ends_in_its_only_tag_is_shown(
    dialect: NativeDialect | XmlDialect | ReactDialect, end: str
) -> None:
    text = f'<invoke name="list_commands"{end}\nI wait.'
    for pieces in (text, [text]):
        parser = dialect.parser(TOOLS)
        found = [part for piece in pieces for part in parser.feed(TextDelta(text=piece))]
        found += parser.close(is_whole=True)
        assert (called(found), shown(found).strip()) == ([("list_commands", {})], "I wait.")


@pytest.mark.parametrize("dialect", [NativeDialect(), XmlDialect(), ReactDialect()])
@pytest.mark.parametrize("half", [JSON_CALL[:40], "{'name': 'echo'}</tool_call>"])
@pytest.mark.parametrize("whole", [WRITTEN["hermes"], WRITTEN["function_calls"]])
def test_a_call_that_cannot_be_read_is_told_also_after_one_that_can(
    dialect: NativeDialect | XmlDialect | ReactDialect, half: str, whole: str
) -> None:
    parser = dialect.parser(TOOLS)
    found = [*parser.feed(TextDelta(text=f"{whole}\n<tool_call>{half}"))]
    found += parser.close(is_whole=True)
    first, second = [one.call for one in found if isinstance(one, CallComplete)]
    assert (first.problem, second.problem) == (None, UNREADABLE)
    assert shown(found).strip() == ""


def test_marks_around_a_call_are_no_call_of_their_own() -> None:
    parser = XmlDialect().parser(TOOLS)
    found = [*parser.feed(TextDelta(text=f"<tool_call>\n{WRITTEN['invoke']}\n</tool_call>"))]
    found += parser.close(is_whole=True)
    assert (called(found), shown(found).strip()) == ([("echo", ARGUMENTS)], "")
