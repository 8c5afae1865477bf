"""Validates a call's arguments against the schema of an MCP tool, in bounded time."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, ClassVar, cast

from pydantic import JsonValue, RootModel, model_validator

from core.dialects.arguments import find_reference, fit_arguments
from core.domain.json import JsonObject

CHECK_STEPS_MAX = 20_000
PROBLEMS_MAX = 5
ANSWERS = "elicitation_answers"
"""The argument with the users' answers to questions that the server asked in an earlier call."""

DEPTH_MAX = 60


class McpArguments(RootModel[dict[str, JsonValue]]):
    """The arguments of an MCP tool. Each tool has a subclass with its own schema."""

    originals: ClassVar[Mapping[str, str]] = {}
    """The server's own names of parameters whose names providers would reject."""

    validation_schema: ClassVar[JsonObject] = {}
    provider_schema: ClassVar[JsonObject] = {}

    @model_validator(mode="after")
    def _fits(self) -> "McpArguments":
        self.root = fit_arguments(self.root, self.validation_schema)
        given = {key: value for key, value in self.root.items() if key != ANSWERS}
        found = find_problems(self.validation_schema, given)
        if found:
            raise ValueError("; ".join(found))
        return self

    def with_server_names(self) -> JsonObject:
        """Returns the arguments under the server's own names."""
        return {self.originals.get(key, key): value for key, value in self.root.items()}

    @classmethod
    def model_json_schema(cls, *_args: Any, **_options: Any) -> dict[str, Any]:
        """Returns the server's own schema instead of one derived from the fields."""
        return cast(dict[str, Any], deepcopy(cls.provider_schema))


def build_arguments_model(
    name: str,
    description: str,
    validation_schema: JsonObject,
    provider_schema: JsonObject,
    originals: Mapping[str, str] | None = None,
) -> type[McpArguments]:
    """Returns the pydantic model for the arguments of one tool."""
    fields = {"__doc__": description, "__module__": __name__}
    made = cast(type[McpArguments], type(name, (McpArguments,), fields))
    made.validation_schema = validation_schema
    made.provider_schema = provider_schema
    made.originals = originals or {}
    return made


class _Exhausted(Exception):
    """Raised if validation exceeds its limit on steps or depth."""


@dataclass(slots=True)
class _Check:
    root: JsonObject
    steps: int = CHECK_STEPS_MAX


def find_problems(schema: JsonValue, value: JsonValue) -> list[str]:
    """Returns sentences for the model about arguments that do not fit the schema, or an empty list if all fit.

    Never rejects valid arguments. Regular expressions, negations and other costly or rare rules are left to the server.
    Returns an empty list if validation takes too long."""
    try:
        root = schema if isinstance(schema, dict) else {}
        return _problems(_Check(root), schema, value, "", 0)[:PROBLEMS_MAX]
    except _Exhausted:
        return []


def _problems(check: _Check, schema: JsonValue, value: JsonValue, place: str, depth: int) -> list[str]:
    check.steps -= 1
    if check.steps < 0 or depth > DEPTH_MAX:
        raise _Exhausted
    if schema is False:
        return [f"{place or 'arguments'}: nothing is allowed here"]
    if not isinstance(schema, dict):
        return []
    # these rules cost more steps, because the server decides how large they are
    rules = (schema.get(key) for key in ("enum", "required", "const", "$ref"))
    check.steps -= sum(len(rule) // 10 for rule in rules if isinstance(rule, str | list))
    said = _of_itself(schema, value)
    if said is not None:
        check.steps -= 20
        return [f"{place or 'arguments'}: {said}"]
    found: list[str] = []
    items = schema.get("items")
    if isinstance(value, dict):
        found += _of_object(check, schema, value, place, depth)
    elif isinstance(value, list) and isinstance(items, dict | bool) and "prefixItems" not in schema:
        for index, item in enumerate(value):
            found += _problems(check, items, item, _in(place, str(index)), depth + 1)
            if len(found) >= PROBLEMS_MAX:
                break
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found += _problems(check, find_reference(reference, check.root), value, place, depth + 1)
    for part in _parts(schema, "allOf"):
        found += _problems(check, part, value, place, depth + 1)
    for word in ("anyOf", "oneOf"):
        tried = [_problems(check, part, value, place, depth + 1) for part in _parts(schema, word)]
        if len(tried) == 1:
            found += tried[0]
        elif tried and all(tried):
            reasons = " or ".join(dict.fromkeys(problems[0] for problems in tried[:PROBLEMS_MAX]))
            found.append(f"{place or 'arguments'}: fits none of the allowed forms ({reasons[:300]})")
    if schema.get("not") == {}:
        found.append(f"{place or 'arguments'}: nothing is allowed here")
    return found


def _of_itself(schema: JsonObject, value: JsonValue) -> str | None:
    kinds = schema.get("type")
    allowed = kinds if isinstance(kinds, list) else [kinds] if kinds is not None else []
    if allowed and not any(_is(value, str(kind)) for kind in allowed):
        return f"should be {' or '.join(map(str, allowed))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_same(value, choice) for choice in choices):
        return f"should be one of {json.dumps(choices, ensure_ascii=False)[:300]}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"should be {json.dumps(schema['const'], ensure_ascii=False)[:300]}"
    for key, kind, fits, said in _BOUNDS:
        if key in schema and (isinstance(value, kind) if kind else _is(value, "number")):
            measured = len(cast(Any, value)) if kind else value
            if not fits(measured, schema[key]):
                return said.format(schema[key])
    return None


def _is(value: JsonValue, kind: str) -> bool:
    match kind:
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, _TYPES.get(kind, object))


_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two JSON values are equal. 1 equals 1.0 but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one == other


_BOUNDS: tuple[tuple[str, type | None, Callable[[Any, Any], bool], str], ...] = (
    ("minLength", str, ge, "should have at least {} characters"),
    ("maxLength", str, le, "should have at most {} characters"),
    ("minItems", list, ge, "should have at least {} items"),
    ("maxItems", list, le, "should have at most {} items"),
    ("minProperties", dict, ge, "should have at least {} entries"),
    ("maxProperties", dict, le, "should have at most {} entries"),
    ("minimum", None, ge, "should be at least {}"),
    ("maximum", None, le, "should be at most {}"),
    ("exclusiveMinimum", None, gt, "should be greater than {}"),
    ("exclusiveMaximum", None, lt, "should be less than {}"),
)
"""The keywords that limit a size or a number, each with the type of value that it applies to. None stands for
numbers."""


def _of_object(check: _Check, schema: JsonObject, value: JsonObject, place: str, depth: int) -> list[str]:
    required = schema.get("required")
    missing = [name for name in required if name not in value] if isinstance(required, list) else []
    found = [f"{_in(place, str(name))}: is missing" for name in missing[:PROBLEMS_MAX]]
    named = schema.get("properties")
    properties = named if isinstance(named, dict) else {}
    others = schema.get("additionalProperties", True)
    for name, one in value.items():
        if name in properties:
            found += _problems(check, properties[name], one, _in(place, name), depth + 1)
        elif "patternProperties" not in schema and others is False:
            found.append(f"{_in(place, name)}: there is no such parameter")
        elif "patternProperties" not in schema:
            found += _problems(check, others, one, _in(place, name), depth + 1)
    return found


def _in(place: str, name: str) -> str:
    return f"{place}.{name[:80]}" if place else name[:80]


def _parts(schema: JsonObject, word: str) -> list[JsonValue]:
    parts = schema.get(word)
    return parts if isinstance(parts, list) else []
