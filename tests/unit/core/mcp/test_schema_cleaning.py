"""Schemas of strangers: what is kept, what is refused, and that no right call is turned away."""

import time
from itertools import count
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from core.domain.call_consent import STAYS
from core.domain.json import JsonObject
from core.mcp.arguments import build_arguments_model, find_problems
from core.mcp.schema_cleaning import UnusableSchema, clean_schema, rename_parameters, split_off_combinations
from core.tools.tool import Tool, ToolContext, ToolSet, prepare_call
from tests.fakes.cpu_seconds import seconds_of

WHOLE: dict[str, Any] = {
    "type": "object",
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "properties": {
        "kind": {"type": "string", "enum": ["a", "b"], "description": "Which."},
        "at": {"$ref": "#/$defs/place"},
        "many": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "name": {"type": "string", "pattern": "^x+$", "minLength": 1},
    },
    "required": ["kind"],
    "additionalProperties": False,
}


def test_a_valid_schema_comes_out_as_it_was() -> None:
    assert clean_schema(WHOLE) == WHOLE


def test_the_whole_schema_reaches_the_model() -> None:
    async def run(_params: object, _context: ToolContext) -> str:
        return ""

    params = build_arguments_model("t", "Does it.", WHOLE, WHOLE)
    tool = Tool(name="t", effect="reads", reach=STAYS, params=params, run=run, title=lambda _params: "t")
    spec = tool.build_spec()
    assert (spec.parameters, spec.description) == (WHOLE, "Does it.")
    arguments: dict[str, Any] = {"kind": "a", "at": {"x": 1}}
    prepared = prepare_call("t", arguments, ToolSet({"t": tool}))
    assert prepared.params.model_dump() == arguments


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"properties": {"a": True, "b": False}}, {"type": "object", "properties": {"a": {}, "b": {"not": {}}}}),
        (
            {"type": "object", "properties": {"a": {"type": "strnig", "required": "yes"}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "http://169.254.169.254/x"}}},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"type": "null"}}}}},
            {
                "type": "object",
                "properties": {"b": {"type": "null"}},
                "$defs": {"a": {"properties": {"b": {"type": "null"}}}},
            },
        ),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}, "x-evil": "y"},
            {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
        ),
        (
            {"properties": {"a": {"description": "do\u200b\U000e0041 it\x1b[0m" + "!" * 2_000}}},
            {
                "type": "object",
                "properties": {"a": {"description": "do it[0m" + "!" * 992 + " [1008 more characters are left out]"}},
            },
        ),
    ],
)
def test_what_breaks_the_rules_goes_and_the_rest_stays(raw: dict[str, Any], cleaned: dict[str, Any]) -> None:
    assert clean_schema(raw) == cleaned


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ([], "no object"),
        ({"type": "array"}, "not of type object"),
        ({"properties": {f"p{n}": {"default": "x" * 500} for n in range(50)}}, "longer than"),
        (nested(60), "nested too deeply"),
    ],
)
def test_what_no_model_could_use_is_refused(raw: object, why: str) -> None:
    with pytest.raises(UnusableSchema, match=why):
        clean_schema(raw)


def test_combinations_at_the_top_are_told_in_words_and_still_checked() -> None:
    schema = clean_schema({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    shown, said = split_off_combinations(schema)
    assert shown == {"type": "object", "properties": {"a": {}, "b": {}}}
    assert '{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}' in said
    assert find_problems(schema, {"b": 1}) == []
    assert find_problems(schema, {}) == ["arguments: fits none of the allowed forms (a: is missing or b: is missing)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, ["kind: is missing"]),
        ({"kind": "c"}, ['kind: should be one of ["a", "b"]']),
        ({"kind": "a", "at": {"x": True}}, ["at.x: should be number"]),
        ({"kind": "a", "other": 1}, ["other: there is no such parameter"]),
        ({"kind": "a", "name": ""}, ["name: should have at least 1 characters"]),
        (
            {"kind": "a", "many": [1, "2"]},
            ["many.1: fits none of the allowed forms (many.1: should be integer or many.1: should be null)"],
        ),
    ],
)
def test_a_wrong_call_is_told_where(arguments: dict[str, Any], said: list[str]) -> None:
    assert find_problems(WHOLE, arguments) == said


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}},
        {
            "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(20)},
            "allOf": [{"$ref": "#/$defs/d0"}],
        },
    ],
)
def test_a_schema_that_wants_endless_work_gets_little(schema: dict[str, Any]) -> None:
    before = time.process_time()
    assert find_problems(schema, {"a": "a" * 40 + "b"}) == []
    assert time.process_time() - before < 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def schemas() -> st.SearchStrategy[Any]:
    leaves = st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
            | st.lists(st.sampled_from(["object", "array", "string", "integer"]), min_size=1, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "maxLength": st.integers(0, 2),
            "minItems": st.integers(0, 2),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "pattern": st.just("^a"),
            "$ref": st.just("#"),
        },
    )
    return st.recursive(
        leaves | st.booleans(),
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
                "additionalProperties": inner,
                "patternProperties": st.dictionaries(st.just("^a"), inner, max_size=1),
                "items": inner,
                "prefixItems": st.lists(inner, min_size=1, max_size=2),
                "anyOf": st.lists(inner, min_size=1, max_size=2),
                "oneOf": st.lists(inner, min_size=1, max_size=2),
                "allOf": st.lists(inner, min_size=1, max_size=2),
                "not": inner,
            },
        ),
        max_leaves=5,
    )


def _accepts(schema: Any, value: Any) -> bool:
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
    except RecursionError:
        return False


@given(schema=st.dictionaries(st.sampled_from("abc"), schemas(), max_size=3), value=VALUES)
def test_no_call_that_fits_is_turned_away(schema: dict[str, Any], value: Any) -> None:
    whole = {"type": "object", "properties": schema}
    arguments = value if isinstance(value, dict) else {"a": value}
    if _accepts(whole, arguments):
        assert find_problems(clean_schema(whole), arguments) == []


def test_parameters_with_names_that_providers_reject_are_renamed_and_mapped_back() -> None:
    names = ["$filter", "filter", "first name", "x" * 65, "größe", "$", "first_name"]
    raw: JsonObject = {
        "properties": {name: {"type": "string"} for name in names},
        "required": ["$filter", "filter"],
        "anyOf": [{"required": ["first name"]}],
    }
    schema, originals = rename_parameters(clean_schema(raw))
    assert originals == {
        "filter_2": "$filter",
        "first_name_2": "first name",
        "x" * 56: "x" * 65,
        "gr_e": "größe",
        "parameter": "$",
    }
    assert schema["required"] == ["filter_2", "filter"]
    assert schema["anyOf"] == [{"required": ["first_name_2"]}]
    made = build_arguments_model("t", "d", schema, schema, originals)
    given: dict[str, JsonValue] = {"filter_2": "a", "filter": "b", "first_name_2": "c"}
    assert made.model_validate(given).with_server_names() == {"$filter": "a", "filter": "b", "first name": "c"}


def test_null_for_an_optional_parameter_means_that_it_is_not_given() -> None:
    schema = clean_schema(
        {
            "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"type": "string"}},
            "required": ["c"],
        }
    )
    made = build_arguments_model("t", "d", schema, schema)
    assert made.model_validate({"a": None, "b": None, "c": "x"}).with_server_names() == {"b": None, "c": "x"}
    with pytest.raises(ValidationError, match="c: should be string"):
        made.model_validate({"c": None})


def test_a_reference_to_an_anchor_is_dropped() -> None:
    raw: JsonObject = {
        "properties": {"a": {"$ref": "#node"}, "b": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"$anchor": "node", "type": "string"}},
    }
    assert clean_schema(raw)["properties"] == {"a": {}, "b": {"$ref": "#/$defs/node"}}


@pytest.mark.parametrize(
    "items",
    [
        {"enum": [*range(4_000)]},
        {"required": [f"x{number}" for number in range(2_000)]},
        {"const": "x" * 19_000},
        {"$ref": "#/" + "a/" * 9_000},
    ],
    ids=lambda items: next(iter(items)),
)
@pytest.mark.parametrize("value", [{}, 3_999], ids=str)
def test_a_costly_schema_holds_up_nobody(items: dict[str, Any], value: JsonValue) -> None:
    schema: dict[str, Any] = {"properties": {"many": {"type": "array", "items": items}}}
    before = time.process_time()
    find_problems(schema, {"many": [value] * 20_000})
    assert time.process_time() - before < 0.3


def test_the_first_wrong_items_of_a_long_list_are_named() -> None:
    schema: dict[str, Any] = {"properties": {"many": {"items": {"enum": [*range(1_000)]}}}}
    found = find_problems(schema, {"many": [-1] * 20_000})
    assert [one.partition(":")[0] for one in found] == [f"many.{number}" for number in range(5)]


@pytest.mark.parametrize("flags", ["", "(?i)"])
def test_a_pattern_that_is_slow_to_compile_holds_up_nobody(flags: str) -> None:
    numbers = count()  # because compiled patterns are cached

    def clean() -> None:
        pattern = flags + "[\x00-\uffff]" * 190 + str(next(numbers))
        raw: JsonObject = {"properties": {"a": {"pattern": pattern}, "b": {"pattern": f"({pattern}"}}}
        assert clean_schema(raw)["properties"] == {"a": {"pattern": pattern}, "b": {}}

    assert seconds_of(clean, seconds_max=0.1) <= 0.1


@pytest.mark.parametrize("plain", ["x", ""])
def test_many_parameters_are_renamed_in_linear_time(plain: str) -> None:
    odd = [f"{plain}{chr(0x4E00 + number)}" for number in range(5_000)]
    schema: JsonObject = {"properties": {name: {} for name in odd}}
    assert len(rename_parameters(schema)[1]) == len(odd)
    assert seconds_of(lambda: rename_parameters(schema), seconds_max=0.3) <= 0.3
