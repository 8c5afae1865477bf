import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.dialects.arguments import fit_arguments
from core.dialects.dialect import CallComplete, ToolSpec
from core.dialects.selection import select_dialect
from core.dialects.xml import XmlDialect, example_arguments
from core.domain.errors import ConfigurationError
from core.domain.messages import ToolCall
from core.ports import TextDelta
from core.tools.catalogue import all_tools

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOLEAN, ARRAY, OBJECT = {"type": "boolean"}, {"type": "array"}, {"type": "object"}
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRING, "007", "007"),
        (STRING, "true", "true"),
        (STRING, ' {"a": 1} ', ' {"a": 1} '),
        (INTEGER, "007", 7),
        (INTEGER, " -3\n", -3),
        (INTEGER, "1_000", "1_000"),
        (INTEGER, "١٢٣", "١٢٣"),
        (INTEGER, "1.5", "1.5"),
        (INTEGER, "9" * 5000, "9" * 5000),
        (NUMBER, "1.50", 1.5),
        (NUMBER, "2", 2),
        (NUMBER, "1.2e400", "1.2e400"),
        (NUMBER, "nan", "nan"),
        (BOOLEAN, "True", True),
        (BOOLEAN, "yes", "yes"),
        (ARRAY, '["a", 1]', ["a", 1]),
        (ARRAY, "a, b", "a, b"),
        (ARRAY, '{"a": 1}', '{"a": 1}'),
        (OBJECT, '\n{"a": [true]}\n', {"a": [True]}),
        (OBJECT, "{broken", "{broken"),
        ({"anyOf": [STRING, NULL]}, "null", "null"),
        ({"anyOf": [STRING, INTEGER]}, "007", "007"),
        ({"anyOf": [INTEGER, NULL]}, "null", None),
        ({"anyOf": [INTEGER, NULL]}, "5", 5),
        ({"anyOf": [STRING, ARRAY]}, '["a.txt"]', ["a.txt"]),
        ({"anyOf": [STRING, ARRAY]}, "a.txt, b.txt", "a.txt, b.txt"),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"enum": ["left", "right"], "type": "string"}, " left ", "left"),
        ({"enum": ["left"], "type": "string"}, "up", "up"),
        ({"enum": [1, 2], "type": "integer"}, "2", 2),
        ({"const": "a"}, "a", "a"),
        ({"$ref": "#/$defs/Count"}, "5", 5),
        ({"allOf": [{"$ref": "#/$defs/Count"}]}, "5", 5),
        ({"$ref": "#/$defs/Loop"}, "5", "5"),
        ({"$ref": "#/nowhere"}, "5", "5"),
        ({}, "5", "5"),
    ],
)
def test_values_are_typed_by_the_schema_alone(schema: dict, text: str, expected: object):
    definitions = {"Count": INTEGER, "Loop": {"$ref": "#/$defs/Loop"}}
    parameters = {"type": "object", "properties": {"x": schema}, "$defs": definitions}
    value = fit_arguments({"x": text}, parameters)["x"]
    assert value == expected
    assert type(value) is type(expected)


def test_a_parameter_that_the_schema_does_not_know_stays_text():
    assert fit_arguments({"y": "5"}, {"type": "object", "properties": {}}) == {"y": "5"}


@settings(deadline=None)
@given(text=st.text())
def test_text_stays_text_where_the_schema_says_so(text: str):
    parameters = {"type": "object", "properties": {"x": STRING, "y": {"anyOf": [STRING, NULL]}}}
    assert fit_arguments({"x": text}, parameters)["x"] == text
    assert fit_arguments({"y": text}, parameters)["y"] == text


@pytest.mark.parametrize("name", sorted(all_tools()))
def test_the_prompt_shows_an_example_of_every_tool_that_parses_and_fits(name: str):
    tool = all_tools()[name]
    spec = tool.build_spec()
    schemas, prompt = XmlDialect().request_parts([spec])
    assert schemas == ()
    assert f"## {name}\n" in prompt
    parser = XmlDialect().parser({name: spec})
    _, _, shown = prompt.partition(f"## {name}\n")
    found = [*parser.feed(TextDelta(text=shown)), *parser.close(is_whole=True)]
    (call,) = [one.call for one in found if isinstance(one, CallComplete)]
    assert (call.problem, call.name) == (None, name)
    assert call.arguments == example_arguments(spec)


def test_an_example_is_made_of_the_required_parameters():
    properties = {"path": STRING, "count": INTEGER, "mode": {"enum": ["fast", "slow"]}, "extra": STRING}
    parameters = {"type": "object", "properties": properties, "required": ["path", "count", "mode"]}
    spec = ToolSpec(name="x", description="", parameters=parameters)
    assert example_arguments(spec) == {"path": "path here", "count": 1, "mode": "fast"}


def test_without_tools_there_is_no_prompt():
    assert XmlDialect().request_parts([]) == ((), "")


def test_a_result_is_a_user_message_without_a_call_id():
    call = ToolCall(name="create_file", arguments={"n": 7}, call_id="made", raw="<invoke>")
    content = XmlDialect().result_content(call, {"success": True, "output": "ü", "error": None})
    assert content["role"] == "user"
    execution = json.loads(str(content["content"]))["tool_execution"]
    assert execution["tool_call_id"] is None
    assert execution["xml_tag_name"] == "create-file"
    assert XmlDialect().parsing_details(call) == {
        "format": "xml",
        "raw_xml": "<invoke>",
        "function_name": "create_file",
        "raw_parameters": {"n": "7"},
    }
    assert XmlDialect().assistant_content("a <invoke>", [call])["tool_calls"] is None


@pytest.mark.parametrize(
    ("model", "setting", "name"),
    [
        ("gpt-4o", "auto", "native"),
        ("anthropic/claude-sonnet-4", "auto", "native"),
        ("ollama/gemma:7b", "auto", "xml"),
        ("openrouter/deepseek/deepseek-r1", "auto", "xml"),
        ("", "auto", "native"),
        ("gpt-4o", "xml", "xml"),
        ("gemma", "native", "native"),
    ],
)
def test_the_dialect_follows_the_setting_or_the_model(model: str, setting: str, name: str):
    assert select_dialect(model, setting).name == name


def test_a_dialect_that_there_is_not_is_told_to_the_operator():
    with pytest.raises(ConfigurationError, match="auto, native, xml or react"):
        select_dialect("gpt-4o", "morse")


NESTED = {
    "type": "object",
    "properties": {
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
        "place": {"type": "object", "properties": {"x": NUMBER, "y": NUMBER}, "required": ["x"]},
    },
    "$defs": {
        "Edit": {
            "type": "object",
            "properties": {"line": INTEGER, "words": {"type": "array", "items": STRING}},
            "required": ["line"],
        }
    },
}


def test_fields_inside_lists_and_objects_are_described():
    tool = ToolSpec(name="edit", description="Edit.", parameters=NESTED)
    _, told = XmlDialect().request_parts([tool])
    assert "- edits (array of {line: integer, words?: array of string}, optional)" in told
    assert "- place ({x: number, y?: number}, optional)" in told
