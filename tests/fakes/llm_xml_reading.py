"""Parses a model's answer in the XML dialect into values that tests compare."""

from collections.abc import Sequence

from core.dialects.dialect import CallComplete, DisplayText, ParsedPart, ToolSpec
from core.dialects.xml import XmlDialect, format_invoke
from core.domain.messages import ToolCall
from core.ports import TextDelta


def tool(name: str, content: str | None = None, **kinds: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    return ToolSpec(
        name=name, description="", parameters={"type": "object", "properties": properties}, content_parameter=content
    )


TOOLS = {
    spec.name: spec
    for spec in (
        tool("create_file", "file_contents", file_path="string", file_contents="string"),
        tool("str_replace", old_str="string", new_str="string"),
        tool("wait", seconds="integer"),
        tool("ask", "text", text="string"),
        tool("complete"),
    )
}


def parsed(text: str, *, cuts: Sequence[int] = (), is_whole: bool = True, calls_max: int = 0):
    """Returns the visible text, the calls as (name, arguments, problem, raw), and the stored text."""
    parser = XmlDialect().parser(TOOLS, calls_max=calls_max)
    found: list[ParsedPart] = []
    for start, end in zip((0, *cuts), (*cuts, len(text)), strict=True):
        found.extend(parser.feed(TextDelta(text=text[start:end])))
    found.extend(parser.close(is_whole=is_whole))
    calls = [one for one in found if isinstance(one, CallComplete)]
    assert [one.index for one in calls] == list(range(len(calls)))
    visible = "".join(one.text for one in found if isinstance(one, DisplayText))
    return visible, [_plain(one.call) for one in calls], parser.raw_answer


def _plain(call: ToolCall):
    return call.name, call.arguments, call.problem, call.raw


def arguments_of(text: str):
    _, calls, _ = parsed(text)
    assert [problem for _, _, problem, _ in calls] == [None] * len(calls)
    return [(name, arguments) for name, arguments, _, _ in calls]


def invoke(name: str, *parameters: tuple[str, str]) -> str:
    return format_invoke(name, dict(parameters))
