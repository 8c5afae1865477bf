"""Cleans parameter schemas from MCP servers, so that every model provider accepts them."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import count
from typing import cast

from pydantic import JsonValue

from core.context.untrusted_text import clean_description, clean_json, clean_line
from core.domain.json import JsonObject

SCHEMA_CHARACTERS_MAX = 20_000
DEPTH_MAX = 24
TEXT_CHARACTERS_MAX = 1_000
KINDS = frozenset(("object", "array", "string", "integer", "number", "boolean", "null"))
_parse_pattern: Callable[[str], object] = import_module("re._parser").parse
"""Checks a pattern in linear time. Compiling a pattern of 1,000 characters may take seconds."""

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Matches parameter names that every provider accepts. Providers reject the whole request for any other name."""

_COMBINED = ("anyOf", "oneOf", "allOf")
_LISTED = frozenset((*_COMBINED, "prefixItems", "items"))
"""Keywords whose value is a list of schemas. `items` with a list is the older spelling of `prefixItems`."""

_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_NESTED = frozenset(("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"))
_COUNTS = frozenset(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"))
_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))


class UnusableSchema(ValueError):
    """Raised if the schema cannot be sent to a model; the message tells the operator why."""


def clean_schema(raw: object) -> JsonObject:
    """Returns a checked copy of a tool's parameter schema; a valid schema keeps its meaning.

    Drops invalid keywords and references to other documents, so the copy may accept more arguments. Raises
    UnusableSchema if too little of the schema remains."""
    if not isinstance(raw, dict):
        raise UnusableSchema("its schema is no object")
    schema = _checked(cast(JsonObject, raw), 0)
    # a `$ref` at the top level is inlined, because providers expect the properties there
    steps, target = str(schema.get("$ref", "")).split("/"), cast(JsonValue, schema)
    for step in steps[1:]:
        target = target.get(step) if isinstance(target, dict) else None
    if len(steps) > 1 and isinstance(target, dict) and "$ref" not in target:
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    if schema.setdefault("type", "object") != "object":
        raise UnusableSchema("its schema is not of type object")
    schema.setdefault("properties", {})
    if len(json.dumps(schema)) > SCHEMA_CHARACTERS_MAX:
        raise UnusableSchema(f"its schema is longer than {SCHEMA_CHARACTERS_MAX} characters")
    return schema


def rename_parameters(schema: JsonObject) -> tuple[JsonObject, Mapping[str, str]]:
    """Returns the schema with parameter names that every provider accepts, and maps each new name to the server's own.

    `$filter` becomes `filter`, and `first name` becomes `first_name`. The description keeps the server's name."""
    properties = schema.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    renamed: dict[str, str] = {}
    numbers: defaultdict[str, Iterator[int]] = defaultdict(partial(count, 2))
    taken = {name for name in names if _PROPERTY.fullmatch(name)}
    for name in names:
        if name in taken:
            continue
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:56] or "parameter"
        renamed[name] = plain
        while renamed[name] in taken:
            renamed[name] = f"{plain}_{next(numbers[plain])}"
        taken.add(renamed[name])
    if not renamed:
        return schema, {}
    return _with_names(schema, renamed), {new: name for name, new in renamed.items()}


def _with_names(schema: JsonObject, renamed: Mapping[str, str]) -> JsonObject:
    """Renames the properties of a schema and of the combinations at its top level."""
    found: JsonObject = dict(schema)
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, dict):
        shown: JsonObject = {}
        for name, one in properties.items():
            if name in renamed and isinstance(one, dict):
                about = f"{clean_line(name, 80)}: {one.get('description', '')}"
                one = {**one, "description": about.rstrip(": ")}
            shown[renamed.get(name, name)] = one
        found["properties"] = shown
    if isinstance(required, list):
        found["required"] = [renamed.get(str(name), name) for name in required]
    for word in _COMBINED:
        parts = schema.get(word)
        if isinstance(parts, list):
            found[word] = [_with_names(one, renamed) if isinstance(one, dict) else one for one in parts]
    return found


def split_off_combinations(schema: JsonObject) -> tuple[JsonObject, str]:
    """Returns the schema without top-level combinations, which providers reject, and a sentence that states them."""
    apart = {key: schema[key] for key in (*_COMBINED, "not", "if", "then", "else") if key in schema}
    if not apart:
        return schema, ""
    shown = {key: value for key, value in schema.items() if key not in apart}
    said = json.dumps(apart, ensure_ascii=False)
    return (shown, f" The arguments must also fit this JSON schema: {clean_line(said, TEXT_CHARACTERS_MAX)}")


def _checked(schema: JsonObject, depth: int) -> JsonObject:
    if depth > DEPTH_MAX:
        raise UnusableSchema("its schema is nested too deeply")
    found: JsonObject = {}
    for key, value in schema.items():
        match value:
            case dict() if key in _NAMED:
                parts = ((str(clean_json(name)), _object(one)) for name, one in value.items())
                found[key] = {name: _checked(one, depth + 1) for name, one in parts}
            case dict() if key in _NESTED:
                found[key] = _checked(value, depth + 1)
            case bool() if key in _NESTED:
                found[key] = value
            case list() if key in _LISTED and value:
                found["prefixItems" if key == "items" else key] = [_checked(_object(one), depth + 1) for one in value]
            case str() if key == "description":
                found[key] = clean_description(value, TEXT_CHARACTERS_MAX)
            case str() if key == "title":
                found[key] = clean_line(value, TEXT_CHARACTERS_MAX)
            case _ if key in _FIT and _FIT[key](value):
                found[key] = clean_json(value)
            case _:
                pass  # it is unknown, or its value is invalid
    kinds = found.get("type")
    if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
        found.setdefault("items", {})
    return found


def _object(value: JsonValue) -> JsonObject:
    """Converts the boolean schemas `true` and `false` to objects."""
    if isinstance(value, dict):
        return value
    return {"not": {}} if value is False else {}


def _is_regular(value: JsonValue) -> bool:
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        return False
    try:
        _parse_pattern(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


_FIT: Mapping[str, Callable[[JsonValue], bool]] = {
    "type": lambda value: value != [] and {*map(str, value if isinstance(value, list) else [value])} <= KINDS,
    "required": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "enum": lambda value: isinstance(value, list) and bool(value),
    # a reference to an `$anchor` is dropped, because providers resolve paths only
    "$ref": lambda value: isinstance(value, str) and (value == "#" or value.startswith("#/")),
    "pattern": _is_regular,
    "format": lambda value: isinstance(value, str) and len(value) <= 64,
    "const": lambda _value: True,
    "default": lambda _value: True,
    "examples": lambda value: isinstance(value, list),
    "uniqueItems": lambda value: isinstance(value, bool),
    **dict.fromkeys(_COUNTS, lambda value: type(value) is int and value >= 0),
    **dict.fromkeys(_BOUNDS, lambda value: type(value) in (int, float)),
}
