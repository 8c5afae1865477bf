"""Parses and repairs JSON tool arguments, and converts text arguments to the types in the tool's JSON schema."""

import re
from collections.abc import Mapping
from typing import cast

import jiter
from pydantic import JsonValue

from core.domain.messages import JsonObject

REPAIR_CHARACTERS_MAX = 1_000_000
EXCERPT_CHARACTERS = 120
# the closing quote is optional, so that an unterminated string is not searched again from each quote inside it
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(")?', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_TRAILING_COMMA = re.compile(r",(\s*+)(?=[}\]])")
_CLOSERS = {"{": "}", "[": "]"}


def parse_arguments(text: str) -> JsonObject:
    """Returns the arguments as an object. Empty text is an empty object.

    Invalid JSON is repaired once: raw line breaks in strings, trailing commas, a surrounding code fence, and
    missing closing brackets at the end. An unterminated string is never repaired, because it may be half of a
    file. Raises ValueError with a message for the model if the text is still invalid.
    """
    if not text or text.isspace():
        return {}
    try:
        value = parse_json(text)
    except ValueError as error:
        try:
            value = parse_json(_mended(text))
        except ValueError:
            raise ValueError(_complaint(text, error)) from error
    if isinstance(value, str):
        # some servers encode the JSON object twice
        try:
            value = parse_json(value)
        except ValueError:
            value = None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("The arguments must be one JSON object. Nothing was run; call it again.")
    return cast(JsonObject, value)


def parse_json(text: str) -> object:
    """Parses strict JSON. Raises ValueError if the text is invalid."""
    return cast(
        object,
        jiter.from_json(text.encode("utf-8", "replace"), allow_inf_nan=False, cache_mode="keys"),
    )


def _mended(text: str) -> str:
    if len(text) > REPAIR_CHARACTERS_MAX:
        raise ValueError("too long to mend")
    stripped = text.strip()
    if stripped.startswith("```"):
        stripped = stripped.partition("\n")[2].rstrip("`").rstrip()
    pieces: list[str] = []
    open_brackets: list[str] = []
    end = 0
    for match in _STRING.finditer(stripped):
        if match[1] is None:
            raise ValueError("a string does not end")
        pieces.append(_outside(stripped[end : match.start()], open_brackets))
        pieces.append(_CONTROL.sub(_escaped, match.group()))
        end = match.end()
    pieces.append(_outside(stripped[end:], open_brackets))
    closers = "".join(_CLOSERS[bracket] for bracket in reversed(open_brackets))
    # trailing commas are removed only outside of strings, so the strings must be split off first
    return _without_trailing_commas([*pieces, closers])


def _outside(piece: str, open_brackets: list[str]) -> str:
    for character in piece:
        if character in "{[":
            open_brackets.append(character)
        elif character in "}]" and open_brackets:
            open_brackets.pop()
    return piece


def _without_trailing_commas(pieces: list[str]) -> str:
    if pieces[-1] and len(pieces) > 1:
        pieces[-2:] = [pieces[-2].rstrip().removesuffix(",") + pieces[-1]]
    return "".join(
        piece if piece.startswith('"') else _TRAILING_COMMA.sub(r"\1", piece) for piece in pieces
    )


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def _complaint(text: str, error: ValueError) -> str:
    excerpt = text if len(text) <= EXCERPT_CHARACTERS else f"{text[:EXCERPT_CHARACTERS]}..."
    return (
        f"The arguments are not valid JSON ({error}); they began with {excerpt!r}. Nothing was run; "
        "call it again with one JSON object, line breaks in strings written as \\n."
    )


REFERENCE_DEPTH_MAX = 16
NUMBER_CHARACTERS_MAX = 40
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS: Mapping[str, Mapping[str, JsonValue]] = {
    "boolean": {"true": True, "false": False},
    "null": {"null": None, "none": None, "": None},
}
_UNREADABLE = object()


def convert_argument(text: str, name: str, parameters: JsonObject) -> JsonValue:
    """Converts the text of a parameter to the type in its JSON schema.

    Returns the text unchanged if it does not fit the schema, so that validation can report the problem.
    """
    properties = parameters.get("properties")
    schema = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return text
    options = _options(schema, parameters, REFERENCE_DEPTH_MAX)
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
"""The order in which the types of a union are tried.

Arrays and objects come before strings, and strings before all other types, so "007" stays a string if the schema
allows one.
"""


def _options(schema: JsonObject, root: JsonObject, depth: int) -> list[JsonObject]:
    """Returns the schema as a flat list of alternatives, with all references resolved."""
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
        value = parse_json(stripped) if stripped[:1] in ("[", "{") else None
    except ValueError:
        return _UNREADABLE
    return value if type(value) is kind else _UNREADABLE
