"""Typing the text of an XML argument by the tool's JSON schema, and by nothing else."""

import re
from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from core.dialects.json_arguments import loads
from core.domain.messages import JsonObject

REFERENCES_MAX = 16
NUMBER_CHARACTERS_MAX = 40
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS: Mapping[str, Mapping[str, JsonValue]] = {
    "boolean": {"true": True, "false": False},
    "null": {"null": None, "none": None, "": None},
}
_UNREADABLE = object()


def typed(text: str, name: str, parameters: JsonObject) -> JsonValue:
    """The value of the parameter. What does not fit its schema stays the text, so that validation can tell."""
    properties = parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return text
    options = _options(schema, parameters, REFERENCES_MAX)
    for choices in (option["enum"] for option in options if "enum" in option):
        if isinstance(choices, list) and text not in choices:
            return _chosen(text, choices)
    kinds = [kind for option in options for kind in _kinds(option)]
    for kind in sorted(kinds, key=_ORDER.index):
        value = _read(text, kind)
        if value is not _UNREADABLE:
            return cast(JsonValue, value)
    return text


_ORDER = ("array", "object", "string", "null", "boolean", "integer", "number")
"""In a union a list or an object wins over text, and text over all else: "007" stays a string where it may be one."""


def _options(schema: JsonObject, root: JsonObject, depth: int) -> list[JsonObject]:
    """The schema as a flat list of alternatives, references followed."""
    if depth == 0:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = _target(reference, root)
        return _options(target, root, depth - 1) if target is not None else []
    if "const" in schema:
        return [{"enum": [schema["const"]], **schema}]
    for word in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(word)
        if isinstance(parts, list):
            return [
                option
                for part in parts
                if isinstance(part, dict)
                for option in _options(part, root, depth - 1)
            ]
    return [schema]


def _target(reference: str, root: JsonObject) -> JsonObject | None:
    place: JsonValue = root
    for step in reference.removeprefix("#/").split("/"):
        if not isinstance(place, dict):
            return None
        place = place.get(step.replace("~1", "/").replace("~0", "~"))
    return place if isinstance(place, dict) else None


def _kinds(option: JsonObject) -> list[str]:
    kind = option.get("type")
    found = kind if isinstance(kind, list) else [kind]
    return [one for one in found if isinstance(one, str) and one in _ORDER]


def _chosen(text: str, choices: list[JsonValue]) -> JsonValue:
    stripped = text.strip()
    if stripped in choices:
        return stripped
    for choice in choices:
        if not isinstance(choice, str) and stripped.lower() == _spelled(choice):
            return choice
    return text


def _spelled(choice: JsonValue) -> str:
    return "null" if choice is None else str(choice).lower()


def _read(text: str, kind: str) -> object:
    stripped = text.strip()
    match kind:
        case "string":
            return text
        case "boolean" | "null":
            return _LITERALS[kind].get(stripped.lower(), _UNREADABLE)
        case "integer" | "number":
            return _number(stripped, kind)
        case _:
            return _structure(stripped, list if kind == "array" else dict)


def _number(stripped: str, kind: str) -> object:
    if len(stripped) > NUMBER_CHARACTERS_MAX:
        return _UNREADABLE
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    if kind == "integer" or not _NUMBER.fullmatch(stripped):
        return _UNREADABLE
    value = float(stripped)
    return value if abs(value) != float("inf") else _UNREADABLE


def _structure(stripped: str, kind: type) -> object:
    try:
        value = loads(stripped) if stripped[:1] in ("[", "{") else None
    except ValueError:
        return _UNREADABLE
    return value if type(value) is kind else _UNREADABLE
