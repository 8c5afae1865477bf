"""Finds tool calls that a model writes into its text although its API has tool calls, so that people never see them.

Models fall back to the format of their training: `<function_calls>`, `<tool_call>` with JSON or tags, and special
tokens such as `<|tool_call_begin|>` and `[TOOL_CALLS]`. Markup inside code fences and inline code is text."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from core.context.message_text import CodeTracker
from core.dialects.arguments import fit_arguments, parse_arguments
from core.dialects.dialect import CallComplete, ToolSpec
from core.dialects.xml import XmlDialect
from core.domain.messages import JsonObject, ToolCall
from core.ports import TextDelta

UNREADABLE = "You wrote a call as text, and it could not be read. Nothing was run. Make it a tool call, not text."
_STARTS = (
    *(f"<{prefix}{name}" for prefix in ("", "antml:") for name in ("function_calls>", "invoke name=")),
    *("<minimax:tool_call>", "<tool_call>", "<tool_calls>", "<function_call>", "<function="),
    *("<|tool_call", "<|/tool_call", "<|python_tag|>", "<｜tool", "[tool_calls]"),
    *(f"</{name}>" for name in ("function_calls", "invoke", "tool_call", "tool_calls")),
)  # fmt: skip
_START = re.compile("|".join(map(re.escape, _STARTS)), re.IGNORECASE)
_MAY_START = re.compile(r"[<\[][^<\[]{0,30}\Z")
_SPECIAL_END = re.compile(
    r"<[|｜]/?tool[_▁a-z]*[_▁]end[|｜]>|<[|｜]/tool_calls?[|｜]>", re.IGNORECASE
)
_END_CHARACTERS_MAX = 40
_XML_PREFIX = re.compile(r"(</?)(?:antml|minimax):", re.IGNORECASE)
_INVOKE_BLOCK = re.compile(r"</?(?:function_calls|tool_calls?)>", re.IGNORECASE)
_MARKED = re.compile(r"\{|<[\w|｜/]|\A\s*\[")
SHORT_START_CHARACTERS = 2
"""The end of an answer with at most so many characters is shown, although a call may begin like that."""
_TAG = re.compile(r"<[^<>]{1,40}>")
_FUNCTION_TAG = re.compile(r"<function=([\w.-]{1,64})>(.*?)(?:</function>|\Z)", re.DOTALL)
_KEYED_NAME = re.compile(r"<tool_call>\s*+([\w.-]{1,64})\s*+<arg_key>", re.IGNORECASE)
_REVERSED_NAME = re.compile(r"(?:\d{1,4}:)?([\w-]{1,64})")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_BEFORE_CHARACTERS = 200
_DECODER = json.JSONDecoder(strict=False)


@dataclass(slots=True)
class WrittenCalls:
    """Separates text for people from calls in one streamed answer. The work is linear in the length of the text."""

    tools: Mapping[str, ToolSpec]
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    _held: str = ""
    _body: list[str] = field(default_factory=list[str])
    _window: str = ""
    _end: re.Pattern[str] | None = None
    _code: CodeTracker = field(default_factory=CodeTracker)

    def feed(self, text: str) -> str:
        """Returns the text that people may read. Holds back what may be the beginning of a call."""
        shown: list[str] = []
        text, self._held = self._held + text, ""
        while text:
            text = self._in_call(text, shown) if self._body else self._in_text(text, shown)
        return "".join(shown)

    def close(self, *, is_whole: bool) -> str:
        """Returns the rest of the text. A call without an end counts if it can be read, unless the answer was cut."""
        shown, self._held = self._held, ""
        if not self._body:
            return "" if self.calls or len(shown) > SHORT_START_CHARACTERS else shown
        body = "".join(self._body)
        self._body = []
        if _is_prose(body, self.tools):
            return shown + body
        if is_whole:
            self._take(body)
        return shown

    def _in_text(self, text: str, shown: list[str]) -> str:
        found = _START.search(text) if "<" in text or "[" in text else None
        if found is None:
            held = _MAY_START.search(text)
            start = held.group().lower() if held else ""
            is_start = bool(start) and any(one.startswith(start) for one in _STARTS)
            cut = held.start() if held and is_start else len(text)
            self._show(text[:cut], shown)
            self._held = text[cut:]
            return ""
        self._show(text[: found.start()], shown)
        if self._code.is_code:
            self._show(found.group(), shown)
            return text[found.end() :]
        if found.group().startswith("</"):
            return text[found.end() :]
        self._body, self._window = [found.group()], found.group()
        self._end = _end_of(found.group().lower())
        return text[found.end() :]

    def _in_call(self, text: str, shown: list[str]) -> str:
        """Adds text to the current call. Returns the text after its end."""
        searched = self._window + text
        end = self._end.search(searched) if self._end else None
        if end is None:
            self._body.append(text)
            self._window = searched[-_END_CHARACTERS_MAX:]
            return ""
        used = end.end() - len(self._window)
        body = "".join((*self._body, text[:used]))
        self._body = []
        if _is_prose(body, self.tools):
            self._show(body, shown)
        else:
            self._take(body)
        return text[used:]

    def _take(self, body: str) -> None:
        if not _SPECIAL_END.fullmatch(body.strip()):
            self.calls += list(_calls_in(body, self.tools)) or [_unreadable(body)]

    def _show(self, text: str, shown: list[str]) -> None:
        """Adds text that people may read, and follows its code fences and inline code."""
        shown.append(text)
        self._code.feed(text)


def _end_of(start: str) -> re.Pattern[str] | None:
    """Returns what ends a call that begins with this markup; None means that the end of the answer does."""
    if start.startswith(("<|tool", "<|/tool", "<｜")):
        return _SPECIAL_END
    if start.startswith(("[", "<|")):
        return None
    name = "function" if start == "<function=" else start[1:].rstrip(">").partition(" ")[0]
    return re.compile(rf"</{re.escape(name)}>", re.IGNORECASE)


def _is_prose(body: str, tools: Mapping[str, ToolSpec]) -> bool:
    """Returns whether the text only mentions the markup, such as "the <tool_call> tag"."""
    text = _START.sub("", body, count=1)
    words = text.split()
    is_tag = body[1].isalpha()
    return is_tag and len(words) > 1 and not _MARKED.search(text) and words[0] not in tools


def _calls_in(body: str, tools: Mapping[str, ToolSpec]) -> Iterator[ToolCall]:
    plain = _XML_PREFIX.sub(r"\1", body)
    if "<invoke" in plain:
        parser = XmlDialect().parser(tools)
        block = f"<function_calls>{_INVOKE_BLOCK.sub('', plain)}</function_calls>"
        for part in (*parser.feed(TextDelta(text=block)), *parser.close(is_whole=True)):
            if isinstance(part, CallComplete):
                yield part.call
        return
    tagged = [*_tagged(plain, tools)]
    for name, values in tagged:
        schema = tools[name].parameters if name in tools else {}
        yield ToolCall(name=name, arguments=fit_arguments(values, schema), call_id="", raw=body)
    if not tagged:
        yield from _json_calls(plain)


def _tagged(body: str, tools: Mapping[str, ToolSpec]) -> Iterator[tuple[str, dict[str, str]]]:
    name = _TAG.sub("", body).strip()
    if name in tools:
        yield name, {}
    if keyed := _KEYED_NAME.search(body):
        pairs = [part.partition("</arg_key>") for part in body.split("<arg_key>")[1:]]
        yield keyed[1], {key.strip(): _between(rest, "<arg_value>") for key, _, rest in pairs}
    for function in _FUNCTION_TAG.finditer(body):
        if "<parameter=" in function[2] or not function[2].strip():
            pairs = [part.partition(">") for part in function[2].split("<parameter=")[1:]]
            values = {key: rest.rpartition("</parameter>")[0] for key, _, rest in pairs}
            yield function[1], {key: _without_line_breaks(text) for key, text in values.items()}


def _between(text: str, start: str) -> str:
    end = start.replace("<", "</")
    return text.partition(start)[2].partition(end)[0]


def _without_line_breaks(value: str) -> str:
    """Removes the line breaks that the format puts around a value."""
    return value.removeprefix("\n").removesuffix("\n")


def _json_calls(body: str) -> Iterator[ToolCall]:
    """Yields the calls that are written as JSON: an object with name and arguments, or a name before its arguments."""
    position = 0
    while (start := body.find("{", position)) >= 0:
        try:
            value, position = _DECODER.raw_decode(body, start)
        except (ValueError, RecursionError):
            return  # what stands inside half a call is no call
        call = _json_call(value, body[max(0, start - _BEFORE_CHARACTERS) : start])
        if call is not None:
            yield call


def _json_call(value: JsonObject, before: str) -> ToolCall | None:
    inner = value.get("function")
    function = inner if isinstance(inner, dict) else value
    name = function.get("name")
    if isinstance(name, str):
        given = [function[key] for key in _ARGUMENT_KEYS if key in function]
        arguments = _parsed(given[0]) if given else {}
        return (
            ToolCall(name=name, arguments=arguments, call_id="") if arguments is not None else None
        )
    name = _name_before(before)
    return ToolCall(name=name, arguments=value, call_id="") if name else None


def _name_before(text: str) -> str:
    """Returns the name that stands before its arguments, such as `functions.echo:0<|tool_call_argument_begin|>`."""
    _, start, tag = text.rstrip().rpartition("<function=")
    if start and tag.endswith(">"):
        return tag[:-1]
    text = text.rstrip()
    for mark in ("```json", "```", "[ARGS]"):
        text = text.removesuffix(mark).rstrip()
    if text.endswith((">", "|>")):
        text = text[: text.rfind("<")].rstrip()
    found = _REVERSED_NAME.match(text[::-1])
    return found[1][::-1] if found else ""


def _parsed(arguments: JsonValue) -> JsonObject | None:
    """Returns the arguments, which may be JSON inside JSON, or None if they are no object."""
    if not isinstance(arguments, str):
        return arguments if isinstance(arguments, dict) else None
    try:
        return parse_arguments(arguments)
    except ValueError:
        return None


def _unreadable(body: str) -> ToolCall:
    return ToolCall(name="", arguments={}, call_id="", raw=body, problem=UNREADABLE)
