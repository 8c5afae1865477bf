"""Arguments as models write them, and as a tool's schema wants them: in every dialect, for tools of ours and of MCP."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from core.dialects.arguments import fit_arguments
from core.dialects.dialect import CallComplete
from core.dialects.selection import select_dialect
from core.dialects.xml import format_call
from core.domain.call_consent import STAYS
from core.domain.errors import ToolError
from core.domain.json import JsonObject
from core.mcp.arguments import McpArguments, build_arguments_model
from core.ports import TextDelta, ToolCallDelta
from core.tools.tool import PreparedCall, Tool, ToolContext, ToolSet, prepare_call


class Edit(BaseModel):
    line: int
    text: str = ""


class FindParams(BaseModel):
    """Find something."""

    queries: list[str]
    limit: int = 7
    view_range: list[int] | None = None
    deep: bool = False
    name: str | None = None
    edits: list[Edit] = []
    share: float = 0.5


async def run(_params: BaseModel, _context: ToolContext) -> str:
    return ""


def tool(name: str, params: type[BaseModel]) -> Tool[BaseModel]:
    return Tool(name=name, effect="reads", reach=STAYS, params=params, run=run, title=lambda _params: name)


SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "queries": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer", "default": 7},
        "view_range": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "deep": {"type": "boolean"},
        "name": {"type": "string"},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
        "share": {"type": "number"},
    },
    "required": ["queries"],
    "$defs": {
        "Edit": {
            "type": "object",
            "properties": {"line": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["line"],
        }
    },
}
TOOLS = ToolSet(
    {
        "find": tool("find", FindParams),
        "find_there": tool("find_there", build_arguments_model("There", "Find there.", SCHEMA, SCHEMA)),
    }
)


def prepared(dialect_name: str, name: str, arguments: JsonObject) -> PreparedCall:
    """The call as it runs after the model has written it in this dialect."""
    dialect = select_dialect("m", dialect_name)
    parser = dialect.parser(TOOLS.specs)
    written = json.dumps(arguments)
    match dialect_name:
        case "native":
            delta = ToolCallDelta(index=0, call_id="c", name=name, arguments=written)
        case "xml":
            delta = TextDelta(text=format_call(name, arguments))
        case _:
            delta = TextDelta(text=f"Action: {name}\nAction Input: {written}")
    parts = [*parser.feed(delta), *parser.close(is_whole=True)]
    (call,) = [one.call for one in parts if isinstance(one, CallComplete)]
    return prepare_call(call.name, call.arguments, TOOLS)


@pytest.mark.parametrize("dialect", ["native", "xml", "react"])
@pytest.mark.parametrize("name", ["find", "find_there"])
@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("queries", '["a", "b"]', ["a", "b"]),
        ("limit", "5", 5),
        ("limit", "null", None),
        ("limit", None, None),
        ("view_range", "[1, 20]", [1, 20]),
        ("view_range", ["1", "20"], [1, 20]),
        ("deep", "true", True),
        ("name", "5", "5"),
        ("name", '["a"]', '["a"]'),
        ("name", "null", "null"),
        ("edits", '[{"line": "3", "text": "5"}]', [{"line": 3, "text": "5"}]),
        ("edits", ['{"line": 3, "text": "[1]"}'], [{"line": 3, "text": "[1]"}]),
        ("edits", [{"line": 3, "text": None}], [{"line": 3}]),
        ("share", "0.25", 0.25),
    ],
)
def test_arguments_are_read_by_the_schema(
    dialect: str, name: str, key: str, written: JsonValue, meant: JsonValue
) -> None:
    call = prepared(dialect, name, {"queries": ["x"], key: written})
    found = call.params.model_dump(exclude_unset=True)
    assert found.get(key) == meant
    assert (key in found) is (meant is not None)


@pytest.mark.parametrize("dialect", ["native", "xml", "react"])
@pytest.mark.parametrize("name", ["find", "find_there"])
@pytest.mark.parametrize("key", ["arguments", "parameters", "args", "kwargs", "input", "params"])
@pytest.mark.parametrize("is_text", [False, True])
def test_arguments_inside_one_more_object_are_unwrapped(dialect: str, name: str, key: str, *, is_text: bool) -> None:
    inner: JsonObject = {"queries": ["x"], "limit": "5"}
    call = prepared(dialect, name, {key: json.dumps(inner) if is_text else inner})
    assert call.params.model_dump(exclude_unset=True) == {"queries": ["x"], "limit": 5}


@pytest.mark.parametrize(
    "arguments",
    [
        {"input": {"queries": ["x"], "other": 1}},
        {"input": {"queries": ["x"]}, "limit": 5},
        {"input": "queries"},
        {"input": '{"queries":'},
        {"other": {"queries": ["x"]}},
    ],
)
def test_what_is_no_wrapper_stays(arguments: JsonObject) -> None:
    assert fit_arguments(arguments, SCHEMA) == arguments
    own: JsonObject = {"properties": {"input": {"type": "object"}, "a": {}}}
    assert fit_arguments({"input": {"a": 1}}, own) == {"input": {"a": 1}}


@pytest.mark.parametrize("name", ["find", "find_there"])
def test_a_null_for_a_required_parameter_is_told_to_the_model(name: str) -> None:
    with pytest.raises(ToolError, match="queries"):
        prepared("native", name, {"queries": None})


def test_a_null_that_the_schema_allows_reaches_the_server() -> None:
    params = prepared("native", "find_there", {"queries": [], "view_range": None}).params
    assert isinstance(params, McpArguments)
    assert params.with_server_names() == {"queries": [], "view_range": None}


def test_text_that_does_not_fit_is_left_for_the_validation() -> None:
    with pytest.raises(ToolError, match="limit"):
        prepared("native", "find", {"queries": [], "limit": "many"})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(arguments=st.dictionaries(st.text(), VALUES, max_size=4))
def test_nothing_changes_where_the_schema_says_nothing(arguments: JsonObject) -> None:
    open_schema: JsonObject = {"type": "object", "properties": {name: {} for name in arguments}}
    assert fit_arguments(arguments, open_schema) == arguments
    assert fit_arguments(arguments, {"type": "object"}) == arguments
    assert fit_arguments(arguments, {}) == arguments


def test_a_schema_that_refers_to_itself_many_times_costs_little() -> None:
    loop: JsonValue = {"anyOf": [{"$ref": "#/$defs/a"} for _ in range(50)], "items": {"$ref": "#/$defs/a"}}
    schema: JsonObject = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": loop}}
    deep: JsonValue = []
    for _ in range(150):
        deep = [deep]
    began = time.process_time()
    assert fit_arguments({"x": "[1]"}, schema) == {"x": "[1]"}
    assert fit_arguments({"x": deep}, schema) == {"x": deep}
    many: list[JsonValue] = ["5"] * 200_000
    numbers: JsonObject = {"properties": {"x": {"type": "array", "items": {"type": "string"}}}}
    assert fit_arguments({"x": many}, numbers) == {"x": many}
    assert time.process_time() - began < 2
