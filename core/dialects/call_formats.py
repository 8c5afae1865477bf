"""The formats in which models write tool calls into their text, and the readers of their calls.

Models fall back to the formats of their training. `_FORMATS` lists them, one row for each mark that opens a call."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, cast

import jiter
from pydantic import JsonValue

from core.dialects.arguments import (
    ARGUMENT_KEYS,
    NAME_KEYS,
    WRAPPING_KEYS,
    called_functions,
    fit_arguments,
    gemma_to_json,
    json_call,
    python_calls,
)
from core.dialects.dialect import ToolSpec, find_tool_name
from core.dialects.xml_parser import read_invokes
from core.domain.json import JsonObject
from core.domain.messages import ToolCall

UNREADABLE = "You wrote a call as text, and it could not be read. Nothing was run. Make it a tool call, not text."
HEAD_CHARACTERS = 200
_CALL_WORDS_MAX = 3
Tools = Mapping[str, ToolSpec]

_MARKED = re.compile(r"""\{|<[\w|｜/]|\A\s*["\[]|\A[\w.-]+>|\w\(""")
_WORD = re.compile(r"[\w.-]+")
_CALLING = re.compile(r"[{=(]|arg_key")
_TAG = re.compile(r"<[^<>]{1,40}>")
_FUNCTION_TAG = re.compile(
    r"<function=([\w.-]{1,64})>(.*?)(?:(</function>)(?=\s{0,9}(?:<function=|</(?:seed:)?tool_call>|\Z))|\Z)", re.DOTALL
)
_FIRST_ARGUMENTS = re.compile(r"\{|<[^\s<>=]{0,12}?(?:parameter|arg_key)[\s=>]", re.IGNORECASE)
_KEYED_VALUE = re.compile(r"<arg_key>([^<>]{1,100})</arg_key>\s{0,9}<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL)
_KEYED_NAME = re.compile(r"<tool_call>\s*+([\w.-]{1,64})\s*+<arg_key>", re.IGNORECASE)
_TAG_NAME = re.compile(r'<[^\s<>]{0,9}?(?:function=|invoke name=)"?([\w.:/-]{1,64})"?>\s*\Z', re.IGNORECASE)
_REVERSED_NAME = re.compile(r"(?:\d{1,4}:)?([\w-]{1,64})")
_CALL_ID = re.compile(r"\[CALL_ID\][\w-]{1,64}\Z", re.IGNORECASE)
_DECODER = json.JSONDecoder(strict=False)


def unreadable_call(raw: str) -> ToolCall:
    return ToolCall(name="", arguments={}, call_id="", raw=raw, problem=UNREADABLE)


def is_prose(inner: str, tools: Tools) -> bool:
    """Returns whether the text after a mark only goes on with a sentence, such as "the <tool_call> tag"."""
    head = inner[:HEAD_CHARACTERS]
    word = _WORD.search(head)
    is_long = len(head.split()) > 1 or inner[:1] == inner[-1:] == " "
    return is_long and not _MARKED.search(head) and not (word and word[0] in tools)


def calls_nothing(body: str, tools: Tools) -> bool:
    """Returns whether the text between marks is a sentence or a list of marks, and has neither name nor arguments."""
    names = _WORD.findall(body)
    is_long = len(body.split()) > _CALL_WORDS_MAX
    return is_long and not _CALLING.search(body) and tools.keys().isdisjoint(names)


def _read_markup(body: str, tools: Tools) -> Iterator[ToolCall]:
    """Yields the calls that are written as tags, or as JSON between tags or special tokens."""
    first = _FIRST_ARGUMENTS.search(body)
    if first and first.group() == "{":
        yield from _read_json(body, tools)
        return
    if first.group()[-1] not in "=>" if first else "invoke name=" in body.lower():
        yield from read_invokes(body, tools)
        return
    tagged = list[tuple[str, dict[str, str]]]()  # a call that was cut off is not added
    only = _TAG.sub("", body).strip()
    if only in tools and "</" in body:
        tagged.append((only, {}))
    if keyed := _KEYED_NAME.search(body):
        pairs = [*_KEYED_VALUE.finditer(body)]
        if "</tool_call" in _KEYED_VALUE.sub("", body):
            tagged.append((keyed[1], {one[1].strip(): one[2] for one in pairs}))
    for function in _FUNCTION_TAG.finditer(body):
        parts = [part.partition(">") for part in function[2].split("<parameter=")[1:]]
        if function[3] and (parts or not function[2].strip()):
            # some models leave out the end of a value
            ended = {
                key: rest.rpartition(end)[0] if (end := "</parameter>") in rest else rest for key, _, rest in parts
            }
            values = {key: value.removeprefix("\n").removesuffix("\n") for key, value in ended.items()}
            tagged.append((function[1], values))
    for name, given in tagged:
        schema = tools[name].parameters if name in tools else {}
        yield ToolCall(name=name, arguments=fit_arguments(given, schema), call_id="", raw=body)


def _read_json(body: str, tools: Tools) -> Iterator[ToolCall]:
    """Yields the calls that are written as JSON: an object with name and arguments, or a name before its arguments."""
    position = 0
    while (start := body.find("{", position)) >= 0:
        try:
            value, position = _DECODER.raw_decode(body, start)
        except (ValueError, RecursionError) as error:
            is_json = isinstance(error, json.JSONDecodeError)
            if is_json and (error.pos >= len(body) - 1 or error.msg.startswith("Unterminated")):
                yield unreadable_call(body[start:])
            return  # what stands inside half a call is no call
        name = _name_before(body[max(0, start - HEAD_CHARACTERS) : start])
        inner = () if find_tool_name(name, tools) in tools else called_functions(value)
        calls = [*filter(None, map(json_call, inner))]
        yield from calls or ([ToolCall(name=name, arguments=value, call_id="")] if name else ())


def _read_gemma(body: str, tools: Tools) -> Iterator[ToolCall]:
    return _read_json(gemma_to_json(body), tools)


def _name_before(text: str) -> str:
    """Returns the name that stands before its arguments, such as `functions.echo:0<|tool_call_argument_begin|>`."""
    if tag := _TAG_NAME.search(text):
        return tag[1]
    text = text.rstrip()
    for mark in ("```json", "```", "[ARGS]"):
        text = text.removesuffix(mark).rstrip()
    text = _CALL_ID.sub("", text)
    if text.endswith((">", "|>")):
        text = text[: text.rfind("<")].rstrip()
    found = _REVERSED_NAME.match(text[::-1])
    return found[1][::-1] if found else ""


_RECIPIENT = re.compile(r"to=([\w.:/-]{1,100})")
_HEADER = re.compile(r"\s{0,9}(?:assistant|analysis|commentary|final|to=)")


def is_no_header(inner: str, _tools: Tools) -> bool:
    word = inner.strip()
    return bool(word) and not word.isalpha() and not _HEADER.match(inner)


def _is_no_object(inner: str, _tools: Tools) -> bool:
    return not inner.lstrip().startswith("{")


def _read_harmony(body: str, _tools: Tools) -> Iterator[ToolCall]:
    header, brace, text = body.partition("{")
    name = _RECIPIENT.search(header)
    try:
        value: JsonValue = _DECODER.decode(brace + text)
    except (ValueError, RecursionError):
        return
    if name and isinstance(value, dict):
        yield ToolCall(name=name[1], arguments=value, call_id="", raw=body)


_FENCED_NAME = re.compile(
    r"""(?:"name"\s*+:\s*+"|\bdefault_api\.|\A\s*+(?:\w{1,40} = )?(?:print\(|(?!print\()))([A-Za-z_][\w-]{0,63})["(]"""
)


def _is_other_code(inner: str, tools: Tools) -> bool:
    """Returns whether a code fence calls none of the tools. An unfinished first line may still call one."""
    found = _FENCED_NAME.search(inner[:HEAD_CHARACTERS])
    is_started = bool(inner.strip()) and "\n" not in inner.lstrip()
    return found[1] not in tools if found else not is_started


def _read_python(body: str, tools: Tools) -> Iterable[ToolCall]:
    """Returns the calls with keyword arguments in a fence, such as `print(default_api.echo(text="a"))`."""
    code = body.partition("\n")[2].rstrip().removesuffix("```")
    if code.lstrip().startswith(("{", "[")):
        return _read_json(code, tools)
    return [ToolCall(name=name, arguments=given, call_id="") for name, given in python_calls(code)]


_BARE_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, "type", "id"})
_FIRST_KEYS = "|".join(sorted({*_BARE_KEYS, *WRAPPING_KEYS}))
BARE_CALL = re.compile(rf'\s{{0,9}}\[?\s{{0,9}}\{{\s{{0,9}}"(?:{_FIRST_KEYS})"')
MAY_BE_BARE = re.compile(r'\s{0,9}(?:\[?\s{0,9}(?:\{\s{0,9}(?:"\w{0,13})?)?)?')
_BARE_NAME = re.compile(rf'"(?:{"|".join(NAME_KEYS)})"\s{{0,9}}:\s{{0,9}}"([^"]{{1,100}})"')
_ARGUMENTS_FIRST = re.compile(rf'[\s\[]{{0,20}}\{{\s{{0,9}}"(?:{"|".join(ARGUMENT_KEYS)})"')
_CONTROL = re.compile(r"[\x00-\x1f]")
_AFTER_BARE = frozenset(" \t\r\n;,]")


def read_bare(text: str, tools: Tools, *, is_cut: bool) -> tuple[list[ToolCall], str]:
    """Returns the calls of the tools in JSON with which a text begins, and what people may read after them.

    None if the text goes on in the line of a call or with other JSON. Half a call at the end has a problem."""
    calls, place, end = list[ToolCall](), text.index("{"), 0
    while text.startswith("{", place):
        try:
            value, end = cast(tuple[JsonValue, int], _DECODER.raw_decode(text, place))
        except (ValueError, RecursionError) as error:
            half, end = text[place:], getattr(error, "pos", place) - place
            is_half = _begins_call(half, end, tools, is_cut=is_cut)
            return ([*calls, unreadable_call(half)], "") if is_half else ([], text)
        if not (found := _bare_calls(value, tools)):
            return [], text
        calls += found
        place = end
        while text[place : place + 1] in _AFTER_BARE:
            place += 1
    rest = text[place:]
    is_apart = not rest or ("\n" in text[end:place] and rest[0] not in "{[")
    return (calls, rest) if is_apart or rest.lower().startswith(CLOSERS) else ([], text)


def _begins_call(text: str, end: int, tools: Tools, *, is_cut: bool) -> bool:
    """Returns whether JSON that can be read only until `end` begins like a call. If a limit has cut it off, it may even
    end before it names a tool."""
    functions: list[JsonObject] = [{"": None}]
    for half in (text, text[:end]):
        with suppress(ValueError):
            content = _CONTROL.sub(" ", half).encode("utf-8", "replace")
            functions += called_functions(jiter.from_json(content, partial_mode="trailing-strings"))
            break
    function = functions[-1]
    if not function.keys() <= _BARE_KEYS:
        return False
    name = next((str(function[key]) for key in NAME_KEYS if key in function), "")
    given = next((function[key] for key in ARGUMENT_KEYS if key in function), None)
    if not name:
        return is_cut if given is None else _fits_tool(given, tools.values())
    return (is_cut and text.endswith(name)) or find_tool_name(name, tools) in tools


def _bare_calls(value: JsonValue, tools: Tools) -> list[ToolCall]:
    """Returns the calls of an object; none if a part of it is something else, or only names a tool."""
    calls = list[ToolCall]()
    for function in called_functions(value):
        is_call = function.keys() <= _BARE_KEYS and not function.keys().isdisjoint(ARGUMENT_KEYS)
        call = json_call(function) if is_call else None
        tool = tools.get(find_tool_name(call.name, tools)) if call else None
        if not (call and tool and _fits_tool(call.arguments, (tool,))):
            return []
        calls.append(call)
    return calls


def _fits_tool(arguments: JsonValue, tools: Iterable[ToolSpec]) -> bool:
    """Returns whether one of the tools has all the parameters that are given."""
    known = (one.parameters.get("properties") for one in tools)
    return isinstance(arguments, dict) and any(
        arguments.keys() <= (one.keys() if isinstance(one, dict) else set()) for one in known
    )


def may_name_tool(head: str, tools: Tools) -> bool:
    names = _BARE_NAME.findall(head)
    return bool(_ARGUMENTS_FIRST.match(head)) or any(find_tool_name(one, tools) in tools for one in names)


class CallFormat(NamedTuple):
    """A way to write calls. `start` is the mark that opens it, and the pattern `end` ends it; the end of the answer
    always does. `read` finds the calls. `is_text` tells from what follows the mark that it is no call at all.

    `inside` says what can hide an end: "" strings of JSON and the values of tags, "all" nothing."""

    start: str
    end: str
    read: Callable[[str, Tools], Iterable[ToolCall] | None] = _read_markup
    is_text: Callable[[str, Tools], bool] | None = is_prose
    inside: str = ""


_SPECIAL_END = r"<[|｜]/?tool[_▁a-z]{0,24}[_▁]end[|｜]>|<[|｜]/tool_calls?[|｜]>"
ONLY_END = re.compile(rf"{_SPECIAL_END}|<[|｜]/?tool[_▁a-z]{{0,30}}[|｜]?>?", re.IGNORECASE)
_HARMONY_END = r"(?=<\|(?:end|call|return|start|channel)\|>)"
_HEADER_END = r"<\|message\|>|\n|json(?=\{)"
_FENCE_END = r"(?<=\n)[ \t]{0,3}```"
_NAMES = ("function_calls", "tool_calls", "tool_call", "function_call")
_OTHER_NAMES = ("toolcall", "functioncall", "seed:tool_call", "longcat_tool_call")
_PREFIXES = ("", "antml:", "minimax:", *(f"{bar}dsml{bar}" for bar in ("|", "||", "｜", "｜｜")))
_FORMATS = (
    *(CallFormat(f"<{p}{name}>", f"</{re.escape(p)}{name}>") for p in _PREFIXES for name in _NAMES),
    *(CallFormat(f"<{p}invoke name=", rf'</{re.escape(p)}invoke>|(?<=")\s{{0,9}}/>') for p in _PREFIXES),
    *(CallFormat(f"<{name}>", f"</{name}>") for name in _OTHER_NAMES),
    CallFormat("[tool_request]", r"\[END_TOOL_REQUEST\]"),
    CallFormat("<function=", "</function>"),
    CallFormat("<|tool_call>", r"<tool_call\|>", _read_gemma, inside="all"),
    CallFormat("<start_function_call>", "<end_function_call>", _read_gemma, inside="all"),
    *(CallFormat(start, _SPECIAL_END) for start in ("<|tool", "<|/tool", "<｜tool", "<｜/tool")),
    CallFormat("<|start_action|>", r"<\|end_action\|>"),
    *(CallFormat(start, "") for start in ("<|python_tag|>", "[tool_calls]")),
    *(CallFormat(m, _HEADER_END, _read_harmony, is_no_header, "all") for m in ("<|start|>", "<|channel|>")),
    CallFormat("```tool_code", _FENCE_END, _read_python, _is_other_code, "all"),
    CallFormat("```tool_call", _FENCE_END, _read_python, _is_other_code),
)  # fmt: skip
HARMONY_CALL = CallFormat("", _HARMONY_END, _read_harmony, None)
HARMONY_THOUGHT = HARMONY_CALL._replace(inside="all")
_HARMONY_NOTE = HARMONY_THOUGHT._replace(is_text=_is_no_object)
BARE_CALLS = CallFormat("", "")
FORMAT_BY_START = {one.start: one for one in _FORMATS}
COMMON_CLOSERS = ("</parameter>", "</function>")
"""What also ends elements of XML that have nothing to do with calls."""
CLOSERS = (
    *(f"</{p}{name}>" for p in _PREFIXES for name in (*_NAMES, "invoke", "parameter")),
    *(f"</{name}>" for name in ("function", *_OTHER_NAMES)),
    *(f"<|{name}|>" for name in ("end", "return", "call", "message", "end_action", "eot_id", "eom_id", "im_end")),
    *("<|end_response|>", "<|end_of_solution|>", "<end_of_turn>", "<turn|>"),
)  # fmt: skip


def message_format(header: str) -> CallFormat | None:
    """Returns how to read the message after a header of gpt-oss; None if it is text for users."""
    if "to=" in header:
        return HARMONY_CALL
    if "analysis" in header:
        return HARMONY_THOUGHT
    return _HARMONY_NOTE if "commentary" in header else None
