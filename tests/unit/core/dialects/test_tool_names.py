"""Names of tools as models wrap them, in every dialect."""

import pytest

from core.dialects.dialect import CallComplete, ToolSpec, find_tool_name
from core.dialects.selection import select_dialect
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta

TOOLS = {
    name: ToolSpec(name=name, description="", parameters={"type": "object", "properties": {}})
    for name in ("execute_command", "read_file", "notes__read", "Ask", "ask")
}
WRAPPED = [
    "execute_command<|channel|>commentary",
    "execute_command<|constrain|>json",
    "functions.execute_command",
    "functions.execute_command:0",
    "default_api.execute_command",
    "commentary to=functions.execute_command",
    "functions__execute_command",
    "Execute-Command",
    "`execute_command`",
    '"execute_command"',
    "execute_command()",
    "executeCommand",
    "ExecuteCommand",
    "execute command",
    "<execute_command>",
]


def call(dialect_name: str, name: str) -> ToolCall:
    dialect = select_dialect("m", dialect_name)
    parser = dialect.parser(TOOLS)
    match dialect_name:
        case "native":
            delta = ToolCallDelta(index=0, call_id="c", name=name, arguments="{}")
        case "xml":
            text = f'<function_calls><invoke name="{name}"></invoke></function_calls>'
            delta = TextDelta(text=text)
        case _:
            delta = TextDelta(text=f"Action: {name}\nAction Input: {{}}")
    parts = [*parser.feed(delta), *parser.close(is_whole=True)]
    (found,) = [one.call for one in parts if isinstance(one, CallComplete)]
    return found


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        (dialect, name)
        for dialect in ("native", "xml", "react")
        for name in WRAPPED
        # an attribute of XML cannot hold these
        if dialect != "xml" or not {*name} & {'"', "<"}
    ],
)
def test_a_wrapper_is_taken_off_in_every_dialect(dialect: str, name: str) -> None:
    assert call(dialect, name).name == "execute_command"


def test_the_odd_name_is_not_kept_in_the_history() -> None:
    dialect = select_dialect("m", "native")
    made = call("native", WRAPPED[0])
    assert "channel" not in str(dialect.assistant_content("", [made]))
    assert "channel" not in str(dialect.result_content(made, {"output": "x"}))


@pytest.mark.parametrize(
    "name",
    [
        "", "functions.", "ASK", "unknown", "functions.unknown", "x" * 300, "read_file.it",
        "mcp__files__read_file", "mcp_files.read_file", "functions.mcp_files/read_file", "MCP:read_file",
    ],
)  # fmt: skip
def test_a_name_that_means_no_tool_or_several_stays(name: str) -> None:
    assert find_tool_name(name, TOOLS) == name


@pytest.mark.parametrize("name", ["notes__read", "functions.notes__read", "functions/notes__read"])
def test_a_name_with_a_namespace_of_its_own_is_found_whole(name: str) -> None:
    assert find_tool_name(name, TOOLS) == "notes__read"


def test_a_tool_of_a_server_that_is_there_is_found_in_every_namespace() -> None:
    tools = ("mcp_files_read", "read")
    for name in ("mcp__files__read", "functions.mcp_files_read", "functions__mcp_files_read"):
        assert find_tool_name(name, tools) == "mcp_files_read"
