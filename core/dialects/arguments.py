"""Parses tool arguments in JSON (repaired) and Python. Converts text to the types in the tool's JSON schema."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import cast

import jiter
from pydantic import JsonValue

from core.domain.json import JsonObject
from core.domain.messages import ToolCall

REPAIR_CHARACTERS_MAX = 1_000_000
REPEATS_MAX = 64
EXCERPT_CHARACTERS = 120
_PYTHON_CHARACTERS_MAX = 100_000
# the closing quote is optional, so that an unterminated string is not searched again from each quote inside it
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(")?', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_GEMMA_QUOTE = re.compile(r'<\|"\|>|<escape>')
_GEMMA_KEY = re.compile(r"([{,]\s{0,9})([A-Za-z_][\w-]{0,63})\s{0,9}:")
_TRAILING_COMMA = re.compile(r",(\s*+)(?=[}\]])")
_CLOSERS = {"{": "}", "[": "]"}
END_TOKENS_MAX = 8
END_TOKEN_CHARACTERS = 60
_END_TOKEN = re.compile(r"(?:</[A-Za-z_]{1,40}>|<[|｜][^<>|｜]{1,40}[|｜]>)\Z")
NAME_KEYS = ("name", "tool_name", "tool", "action", "function")
WRAPPING_KEYS = ("function", "function_call", "tool_call", "tool_calls")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "kwargs", "params", "input", "action_input")
_DECODER = json.JSONDecoder()
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def parse_arguments(text: str) -> JsonObject:
    """Returns the arguments as an object. Empty text is an empty object.

    Invalid JSON is repaired once: raw line breaks in strings, trailing commas, a surrounding code fence, missing
    closing brackets, tokens of a chat template at the end, an object that is repeated, and Python syntax. An
    unterminated string is never repaired, because it may be half of a file. Raises ValueError with a message for the
    model if the text is still invalid."""
    # removes closing tags and special tokens at the end, with which no JSON object ends
    for _ in range(END_TOKENS_MAX):
        text = text.rstrip()
        last = _END_TOKEN.search(text[-END_TOKEN_CHARACTERS:])
        if last is None:
            break
        text = text[: -len(last.group())]
    if not text or text.isspace():
        return {}
    try:
        value = parse_json(text)
    except ValueError as error:
        for repaired in (_mended, _said_once, _from_python):
            with suppress(ValueError):
                value = parse_json(repaired(text))
                break
        else:
            excerpt = text if len(text) <= EXCERPT_CHARACTERS else f"{text[:EXCERPT_CHARACTERS]}..."
            raise ValueError(
                f"The arguments are not valid JSON ({error}); they began with {excerpt!r}. Nothing was run; "
                "call it again with one JSON object, line breaks in strings written as \\n."
            ) from error
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
    return cast(object, jiter.from_json(text.encode("utf-8", "replace"), allow_inf_nan=False, cache_mode="keys"))


def gemma_to_json(text: str) -> str:
    """Converts Gemma's notation to JSON: its keys are bare, and special tokens stand around its strings."""
    parts = _GEMMA_QUOTE.split(text)
    parts[::2] = (_GEMMA_KEY.sub(r'\1"\2":', part) for part in parts[::2])
    parts[1::2] = map(json.dumps, parts[1::2])
    return "".join(parts)


def python_calls(code: str) -> list[tuple[str, JsonObject]]:
    """Returns the names and keyword arguments of the calls in Python code, or nothing if one is not readable."""
    calls = list[tuple[str, JsonObject]]()
    try:
        for statement in ast.parse(code[:_PYTHON_CHARACTERS_MAX]).body:
            call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "print" and call.args:
                call = call.args[0]
            if isinstance(call, ast.Call):
                arguments = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
                if call.args or "" in arguments:  # positional arguments, or `**arguments`
                    return []
                calls.append((ast.unparse(call.func), cast(JsonObject, json.loads(json.dumps(arguments)))))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return calls


def called_functions(value: JsonValue) -> list[JsonObject]:
    """Returns the objects that name tools, which may stand inside others."""
    calls = value.get("tool_calls") if isinstance(value, dict) and len(value) == 1 else None
    return [
        next((inner for key in WRAPPING_KEYS if isinstance(inner := one.get(key), dict)), one)
        for one in (calls if isinstance(calls, list) else [value])
        if isinstance(one, dict)
    ]


def json_call(function: JsonObject) -> ToolCall | None:
    """Returns the call that an object with name and arguments describes; None if it describes none."""
    name = next((function[key] for key in NAME_KEYS if key in function), None)
    given = next((function[key] for key in ARGUMENT_KEYS if key in function), None) or ""
    try:
        # some models write the arguments as JSON inside JSON
        arguments = parse_arguments(given) if isinstance(given, str) else given
    except ValueError:
        return None
    if isinstance(name, str) and isinstance(arguments, dict):
        return ToolCall(name=name, arguments=arguments, call_id="")
    return None


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
        pieces.append(_CONTROL.sub(lambda one: f"\\u{ord(one[0]):04x}", match.group()))
        end = match.end()
    pieces.append(_outside(stripped[end:], open_brackets))
    closers = "".join(_CLOSERS[bracket] for bracket in reversed(open_brackets))
    # trailing commas are removed only outside of strings, so the strings must be split off first
    pieces = [*pieces, closers]
    if pieces[-1] and len(pieces) > 1:
        pieces[-2:] = [pieces[-2].rstrip().removesuffix(",") + pieces[-1]]
    return "".join(piece if piece.startswith('"') else _TRAILING_COMMA.sub(r"\1", piece) for piece in pieces)


def _from_python(text: str) -> str:
    """Returns a Python dictionary as JSON. Raises ValueError if the text is none."""
    try:
        return json.dumps(ast.literal_eval(text[: _PYTHON_CHARACTERS_MAX + 1].strip()))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("no dictionary of Python either") from error


def _said_once(text: str) -> str:
    """Returns the object at the start of the text. Raises ValueError unless the rest only repeats it or its end.

    Some servers repeat the arguments in the last piece of a stream."""
    if len(text) > REPAIR_CHARACTERS_MAX:
        raise ValueError("too long to compare")
    try:
        text = text.strip()
        value, end = _DECODER.raw_decode(text)
        first, rest = text[:end], text[end:].lstrip()
        for _ in range(REPEATS_MAX):
            if first.endswith(rest):
                return first
            again, end = _DECODER.raw_decode(rest)
            if value != (_DECODER.decode(again) if isinstance(again, str) else again):
                break
            rest = rest[end:].lstrip()
    except RecursionError as error:
        raise ValueError("too deep to compare") from error
    raise ValueError("something else follows")


def _outside(piece: str, open_brackets: list[str]) -> str:
    for character in piece:
        if character in "{[":
            open_brackets.append(character)
        elif character in "}]" and open_brackets:
            open_brackets.pop()
    return piece


OPTIONS_MAX = 100
"""How many parts of one parameter's schema are looked at."""
VALUE_DEPTH_MAX = 40
NUMBER_CHARACTERS_MAX = 40
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS: Mapping[str, Mapping[str, JsonValue]] = {
    "boolean": {"true": True, "false": False},
    "null": {"null": None, "none": None, "": None},
}
_UNREADABLE = object()


def fit_arguments(
    arguments: Mapping[str, JsonValue], parameters: JsonObject, root: JsonObject | None = None, depth: int = 0
) -> JsonObject:
    """Returns the arguments of a call as the JSON schema of its parameters wants them, without an object around them.

    A null for an optional parameter that cannot be null is left out, because models write it for "not given". Text that
    stands for another type is converted, also inside lists and objects, unless the schema allows text. Values that do
    not fit stay as they are, so that validation can report the problem. A schema that allows no other names also gets
    the arguments that models call otherwise. `root` is the schema that references refer to; it and `depth` are for the
    function itself."""
    root = parameters if root is None else root
    arguments = _unwrapped(arguments, parameters)
    if parameters.get("additionalProperties") is False:
        arguments = _renamed(arguments, parameters)
    properties, required = parameters.get("properties"), parameters.get("required")
    needed = required if isinstance(required, list) else []
    fitted: JsonObject = {}
    for name, value in arguments.items():
        schema = properties.get(name) if isinstance(properties, dict) else None
        options = _options(schema, root)
        value = _fitted(value, options, root, depth)
        if value is not None or name in needed or not options or any(map(_may_be_null, options)):
            fitted[name] = value
    return fitted


def _unwrapped(arguments: Mapping[str, JsonValue], schema: JsonObject) -> Mapping[str, JsonValue]:
    """Returns the arguments inside a single one that the schema does not know, such as `{"input": {...}}`."""
    key, value = next(iter(arguments.items()), ("", None))
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {key: None}
    if len(arguments) != 1 or key not in ARGUMENT_KEYS or key in known:
        return arguments
    inner = _structure(value.strip(), dict) if isinstance(value, str) else value
    is_meant = isinstance(inner, dict) and inner.keys() <= known.keys()
    return cast(JsonObject, inner) if is_meant else arguments


_SYNONYMS = (
    {"file_path", "path", "file", "filename", "file_name", "filepath", "target_file"},
    {"file_contents", "file_text", "content", "contents", "file_content", "text"},
    {"old_str", "old_string", "old_text"},
    {"new_str", "new_string", "new_text"},
    {"folder", "workdir", "working_directory", "working_dir", "cwd", "directory", "dir"},
    {"directory_path", "directory", "folder", "path", "dir"},
    {"path", "folder", "directory", "dir", "directory_path"},
    {"text", "message", "answer", "result", "response", "summary", "content", "question"},
    {"command", "cmd", "script"},
    {"code", "script", "python", "source"},
    {"timeout", "timeout_seconds", "seconds"},
    {"start_line", "offset", "line_start", "first_line"},
    {"end_line", "line_end", "last_line"},
    {"session_name", "session", "session_id"},
    {"urls", "url", "link", "links"},
    {"url", "link", "address"},
    {"query", "q", "search_query", "question"},
    {"options", "choices"},
    {"attachments", "files"},
    {"num_results", "count", "limit", "max_results"},
)
"""Parameter names that mean the same. Models use the names of other agents' tools, such as `workdir` for `folder`."""


def _renamed(arguments: Mapping[str, JsonValue], schema: JsonObject) -> Mapping[str, JsonValue]:
    """Returns the arguments under the names in the schema, without null values under unknown names.

    A name that is unknown or could mean two parameters is kept, so that validation refuses it."""
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    if {"limit", "end_line"} & arguments.keys() == {"limit"} and "end_line" in known:
        # `limit` is the number of lines to read
        first, others = arguments.get("start_line", arguments.get("offset", 1)), {**arguments}
        with suppress(TypeError, ValueError):
            others["end_line"] = int(cast(int, first)) + int(cast(int, others.pop("limit"))) - 1
            arguments = others
    renamed: JsonObject = {name: value for name, value in arguments.items() if name in known}
    for name, value in arguments.items():
        if name in known or value is None:
            continue
        plain = _CAMEL.sub("_", name).lower()
        meant = {one for group in _SYNONYMS if plain in group for one in group & known.keys()}
        meant |= {plain} & known.keys()
        free = meant - renamed.keys()
        renamed[free.pop() if len(free) == 1 else name] = value
    return renamed


def _fitted(value: JsonValue, options: Sequence[JsonObject], root: JsonObject, depth: int) -> JsonValue:
    kinds = {kind for option in options for kind in _kinds(option)}
    if isinstance(value, str):
        value = _converted(value, options, kinds)
    # lists and objects inside other values are no text: there they are mistakes that the model must correct
    elif value is not None and kinds == {"string"} and not (depth > 0 and isinstance(value, dict | list)):
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return "\n".join(map(str, value))
        return json.dumps(value, ensure_ascii=False)
    if depth == VALUE_DEPTH_MAX:
        return value
    if isinstance(value, list):
        items = _options(next((one["items"] for one in options if "items" in one), None), root)
        return [_fitted(one, items, root, depth + 1) for one in value] if items else value
    objects = [one for one in options if "properties" in one]
    if isinstance(value, dict) and len(objects) == 1:
        return fit_arguments(value, objects[0], root, depth + 1)
    return value


def _may_be_null(option: JsonObject) -> bool:
    choices = option.get("enum")
    return "null" in _kinds(option) or (None in choices if isinstance(choices, list) else "type" not in option)


def _converted(text: str, options: Sequence[JsonObject], kinds: set[str]) -> JsonValue:
    for choices in (option["enum"] for option in options if "enum" in option):
        if isinstance(choices, list) and text not in choices:
            stripped = text.strip()
            if stripped in choices:
                return stripped
            for choice in choices:
                spelled = "null" if choice is None else str(choice).lower()
                if not isinstance(choice, str) and stripped.lower() == spelled:
                    return choice
            return text
    for kind in sorted(kinds, key=_ORDER.index):
        value = _read(text, kind)
        if value is not _UNREADABLE:
            return cast(JsonValue, value)
    return None if kinds and text.strip().lower() in ("null", "none") else text


_ORDER = ("array", "object", "string", "null", "boolean", "integer", "number")
"""The order in which the types of a union are tried: "007" stays a string if the schema allows one."""


def _options(schema: JsonValue, root: JsonObject) -> list[JsonObject]:
    """Returns the schema as a flat list of alternatives, with all references resolved."""
    found: list[JsonObject] = []
    waiting = [schema]
    for one in islice(waiting, OPTIONS_MAX):
        if not isinstance(one, dict):
            continue
        parts = [one[word] for word in ("anyOf", "oneOf", "allOf") if word in one]
        if isinstance(reference := one.get("$ref"), str):
            waiting.append(find_reference(reference, root))
        for part in parts:
            waiting += part[:OPTIONS_MAX] if isinstance(part, list) else ()
        if "const" in one:
            found.append({"enum": [one["const"]], **one})
        elif "type" in one or "enum" in one or not (parts or reference):
            found.append(one)
    return found


def find_reference(reference: str, root: JsonObject) -> JsonValue:
    """Returns the schema that a reference points to. Returns True, a schema that accepts anything, if there is none."""
    place: JsonValue = root if reference in ("#", "#/") or reference.startswith("#/") else True
    for step in filter(None, reference.removeprefix("#").split("/")):
        if not isinstance(place, dict):
            return True
        place = place.get(step.replace("~1", "/").replace("~0", "~"), True)
    return place


def _kinds(option: JsonObject) -> list[str]:
    kind = option.get("type")
    found = kind if isinstance(kind, list) else [kind]
    return [one for one in found if isinstance(one, str) and one in _ORDER]


def _read(text: str, kind: str) -> object:
    stripped = text.strip()
    match kind:
        case "string":
            return text
        case "boolean" | "null":
            return _LITERALS[kind].get(stripped.lower(), _UNREADABLE)
        case "integer" | "number":
            if len(stripped) > NUMBER_CHARACTERS_MAX:
                return _UNREADABLE
            if _INTEGER.fullmatch(stripped):
                return int(stripped)
            if kind == "integer" or not _NUMBER.fullmatch(stripped):
                return _UNREADABLE
            value = float(stripped)
            return value if abs(value) != float("inf") else _UNREADABLE
        case _:
            return _structure(stripped, list if kind == "array" else dict)


def _structure(stripped: str, kind: type) -> object:
    try:
        value = parse_json(stripped) if stripped[:1] in ("[", "{") else None
    except ValueError:
        return _UNREADABLE
    return value if type(value) is kind else _UNREADABLE
