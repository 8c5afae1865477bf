"""Finds tool calls that a model writes into its text although its API has tool calls, so that people never see them.

Models fall back to the formats of their training. `_FORMATS` lists them, one row for each mark that opens a call.
Markup inside code fences, inline code and quotes is text, and so is a sentence about a mark."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, cast

from pydantic import JsonValue

from core.context.message_text import CodeTracker
from core.dialects.arguments import fit_arguments, gemma_to_json, json_call, python_calls
from core.dialects.dialect import ToolSpec, find_tool_name
from core.dialects.xml_parser import read_invokes
from core.domain.messages import ToolCall

UNREADABLE = "You wrote a call as text, and it could not be read. Nothing was run. Make it a tool call, not text."
SHORT_START_CHARACTERS = 2
"""The end of an answer with at most so many characters is shown, although a call may begin like that."""
_END_CHARACTERS_MAX = 64
_HEAD_CHARACTERS = 200
_LINE_CHARACTERS_MAX = 2_000
_CALL_WORDS_MAX = 3
Tools = Mapping[str, ToolSpec]

_MARKED = re.compile(r"""\{|<[\w|｜/]|\A\s*["\[]|\A[\w.-]+>|\w\(""")
_WORD = re.compile(r"[\w.-]+")
_CALLING = re.compile(r"[{=(]|arg_key")
_TAG = re.compile(r"<[^<>]{1,40}>")
_FUNCTION_TAG = re.compile(
    r"<function=([\w.-]{1,64})>(.*?)(?:(</function>)(?=\s{0,9}(?:<function=|</tool_call>|\Z))|\Z)",
    re.DOTALL,
)
_FIRST_ARGUMENTS = re.compile(r"\{|<[^\s<>=]{0,12}?(?:parameter|arg_key)[\s=>]", re.IGNORECASE)
_KEYED_VALUE = re.compile(
    r"<arg_key>([^<>]{1,100})</arg_key>\s{0,9}<arg_value>(.*?)(?:</arg_value>|\Z)", re.DOTALL
)
_KEYED_NAME = re.compile(r"<tool_call>\s*+([\w.-]{1,64})\s*+<arg_key>", re.IGNORECASE)
_TAG_NAME = re.compile(
    r'<[^\s<>]{0,9}?(?:function=|invoke name=)"?([\w.:/-]{1,64})"?>\s*\Z', re.IGNORECASE
)
_REVERSED_NAME = re.compile(r"(?:\d{1,4}:)?([\w-]{1,64})")
_CALL_ID = re.compile(r"\[CALL_ID\][\w-]{1,64}\Z", re.IGNORECASE)
_DECODER = json.JSONDecoder(strict=False)


def _is_prose(inner: str, tools: Tools) -> bool:
    """Returns whether the text after a mark only goes on with a sentence, such as "the <tool_call> tag"."""
    head = inner[:_HEAD_CHARACTERS]
    word = _WORD.search(head)
    is_long = len(head.split()) > 1 or inner[:1] == inner[-1:] == " "
    return is_long and not _MARKED.search(head) and not (word and word[0] in tools)


def _calls_nothing(body: str, tools: Tools) -> bool:
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
    for name, values in _tagged(body, tools):
        schema = tools[name].parameters if name in tools else {}
        yield ToolCall(name=name, arguments=fit_arguments(values, schema), call_id="", raw=body)


def _tagged(body: str, tools: Tools) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields names and arguments, but not those of half a call."""
    name = _TAG.sub("", body).strip()
    if name in tools and "</" in body:
        yield name, {}
    if keyed := _KEYED_NAME.search(body):
        pairs = [*_KEYED_VALUE.finditer(body)]
        if "</tool_call" in _KEYED_VALUE.sub("", body):
            yield keyed[1], {one[1].strip(): one[2] for one in pairs}
    for function in _FUNCTION_TAG.finditer(body):
        parts = [part.partition(">") for part in function[2].split("<parameter=")[1:]]
        if function[3] and (parts or not function[2].strip()):
            yield function[1], {key: _without_end(rest) for key, _, rest in parts}


def _without_end(rest: str) -> str:
    """Returns the value without its end, which some models leave out, and the line breaks around it."""
    value, end, _ = rest.rpartition("</parameter>")
    return (value if end else rest).removeprefix("\n").removesuffix("\n")


def _read_json(body: str, tools: Tools) -> Iterator[ToolCall]:
    """Yields the calls that are written as JSON: an object with name and arguments, or a name before its arguments."""
    position = 0
    while (start := body.find("{", position)) >= 0:
        try:
            value, position = _DECODER.raw_decode(body, start)
        except (ValueError, RecursionError):
            return  # what stands inside half a call is no call
        name = _name_before(body[max(0, start - _HEAD_CHARACTERS) : start])
        call = None if find_tool_name(name, tools) in tools else json_call(value)
        if call or name:
            yield call or ToolCall(name=name, arguments=value, call_id="")


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


def _is_no_header(inner: str, _tools: Tools) -> bool:
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
    found = _FENCED_NAME.search(inner[:_HEAD_CHARACTERS])
    is_started = bool(inner.strip()) and "\n" not in inner.lstrip()
    return found[1] not in tools if found else not is_started


def _read_python(body: str, tools: Tools) -> Iterable[ToolCall]:
    """Returns the calls with keyword arguments in a fence, such as `print(default_api.echo(text="a"))`."""
    code = body.partition("\n")[2].rstrip().removesuffix("```")
    if code.lstrip().startswith(("{", "[")):
        return _read_json(code, tools)
    return [ToolCall(name=name, arguments=given, call_id="") for name, given in python_calls(code)]


_BARE_START = r'\s{0,9}\[?\s{0,9}\{\s{0,9}"'
_BARE = re.compile(_BARE_START + '(?:name|type|id|function|arguments|parameters)"')
_MAY_BE_BARE = re.compile(r'\s{0,9}(?:\[?\s{0,9}(?:\{\s{0,9}(?:"\w{0,10})?)?)?')
_HALF_BARE = re.compile(
    _BARE_START + r'name"\s{0,9}:\s{0,9}"([\w.-]{1,64})"\s{0,9},\s{0,9}"(?:parameters|arguments)"'
)
_ARGUMENTS_FIRST = re.compile(_BARE_START + '(?:arguments|parameters)"')
_BETWEEN_BARE = frozenset(" \t\r\n;,")
_BARE_KEYS = frozenset({"name", "type", "id", "arguments", "parameters"})


def _read_bare(body: str, tools: Tools) -> list[ToolCall] | None:
    """Returns the calls if the text is nothing but calls of the tools in JSON; None if the JSON is not whole."""
    text, place, calls = body.strip(), 0, list[ToolCall]()
    while not calls or text.startswith("{", place):
        try:
            value, place = cast(tuple[JsonValue, int], _DECODER.raw_decode(text, place))
        except (ValueError, RecursionError):
            return None
        made = [_bare_call(one, tools) for one in (value if isinstance(value, list) else [value])]
        if not made or not all(made):
            return []
        calls += [call for call in made if call]
        while text[place : place + 1] in _BETWEEN_BARE:
            place += 1
    return calls if text[place:] in ("", *_CLOSERS) else []


def _bare_call(value: JsonValue, tools: Tools) -> ToolCall | None:
    inner = value.get("function") if isinstance(value, dict) else None
    function = inner if isinstance(inner, dict) else value
    if not isinstance(function, dict) or not function.keys() <= _BARE_KEYS:
        return None
    if function.keys().isdisjoint(("arguments", "parameters")):
        return None  # it only names the tool
    call = json_call(function)
    if call is None or call.name not in tools:
        return None
    properties = tools[call.name].parameters.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return call if call.arguments.keys() <= known.keys() else None


def _may_name_tool(head: str, tools: Tools) -> bool:
    return _ARGUMENTS_FIRST.match(head) is not None or any(f'"{name}"' in head for name in tools)


def _is_no_bare_call(inner: str, tools: Tools) -> bool:
    calls, half = _read_bare(inner, tools), _HALF_BARE.match(inner)
    return not calls if calls is not None else half is None or half[1] not in tools


class _Format(NamedTuple):
    """A way to write calls. `start` is the mark that opens it, and the pattern `end` ends it; the end of the answer
    always does. `read` finds the calls. `is_text` tells from what follows the mark that it is no call at all.

    `inside` says what can hide an end: "" strings of JSON and the values of tags, "all" nothing."""

    start: str
    end: str
    read: Callable[[str, Tools], Iterable[ToolCall] | None] = _read_markup
    is_text: Callable[[str, Tools], bool] | None = _is_prose
    inside: str = ""


_SPECIAL_END = r"<[|｜]/?tool[_▁a-z]{0,24}[_▁]end[|｜]>|<[|｜]/tool_calls?[|｜]>"
_ONLY_END = re.compile(rf"{_SPECIAL_END}|<[|｜]/?tool[_▁a-z]{{0,30}}[|｜]?>?", re.IGNORECASE)
_HARMONY_END = r"(?=<\|(?:end|call|return|start|channel)\|>)"
_HEADER_END = r"<\|message\|>|\n|json(?=\{)"
_FENCE_END = r"(?<=\n)[ \t]{0,3}```"
_NAMES = ("function_calls", "tool_calls", "tool_call", "function_call")
_PREFIXES = ("", "antml:", "minimax:", *(f"{bar}dsml{bar}" for bar in ("|", "||", "｜", "｜｜")))
_FORMATS = (
    *(_Format(f"<{p}{name}>", f"</{re.escape(p)}{name}>") for p in _PREFIXES for name in _NAMES),
    *(_Format(f"<{p}invoke name=", f"</{re.escape(p)}invoke>") for p in _PREFIXES),
    _Format("<function=", "</function>"),
    _Format("<|tool_call>", r"<tool_call\|>", _read_gemma, inside="all"),
    _Format("<start_function_call>", "<end_function_call>", _read_gemma, inside="all"),
    *(_Format(start, _SPECIAL_END) for start in ("<|tool", "<|/tool", "<｜tool", "<｜/tool")),
    _Format("<|start_action|>", r"<\|end_action\|>"),
    *(_Format(start, "") for start in ("<|python_tag|>", "[tool_calls]")),
    *(_Format(m, _HEADER_END, _read_harmony, _is_no_header, "all") for m in ("<|start|>", "<|channel|>")),
    _Format("```tool_code", _FENCE_END, _read_python, _is_other_code, "all"),
    _Format("```tool_call", _FENCE_END, _read_python, _is_other_code),
)  # fmt: skip
_HARMONY_CALL = _Format("", _HARMONY_END, _read_harmony, None)
_HARMONY_THOUGHT = _HARMONY_CALL._replace(inside="all")
_HARMONY_NOTE = _Format("", _HARMONY_END, _read_harmony, _is_no_object, "all")
_WHOLE_ANSWER = _Format("", "", _read_bare, _is_no_bare_call)
_BY_START = {one.start: one for one in _FORMATS}
_CLOSERS = (
    *(f"</{name}>" for name in (*_NAMES, "invoke", "minimax:tool_call")),
    *(f"<|{name}|>" for name in ("end", "return", "call", "message", "end_action", "eot_id", "eom_id", "im_end")),
    *("<|end_response|>", "<|end_of_solution|>", "<end_of_turn>", "<turn|>"),
)  # fmt: skip
_STARTS = (*_BY_START, *_CLOSERS)
# without ASCII, other letters such as the Kelvin sign would count as lower-case ones
_START = re.compile("|".join(map(re.escape, _STARTS)), re.IGNORECASE | re.ASCII)
_MAY_START = re.compile(r"(?:[<\[]|`{1,3})[^<\[`]{0,30}\Z")
_STRING_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*', re.DOTALL)
_CODE_OR_LINE_END = re.compile(r'[^`\n{]*+(?:\{(?:[^`\n"]++|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"?)*)?')


@lru_cache(maxsize=128)
def _tokens(end: str, inside: str) -> re.Pattern[str]:
    """Returns the pattern for the end of a call, and for what may hide an end, at one kind of place in a call."""
    value = r"<[^\s<>=]{0,12}?(?P<value>parameter|arg_value)[\s=>]"
    more = {"": rf"|{value}|(?P<json>\{{)", "json": '|(?P<string>")', "tags": f"|{value}"}
    if inside in ("parameter", "arg_value"):
        return re.compile(rf"(?P<tags></[^\s<>]{{0,12}}?{inside}>)", re.IGNORECASE)
    return re.compile(rf"(?P<end>{end}){more.get(inside, '')}", re.IGNORECASE)


def _message_format(header: str) -> _Format | None:
    """Returns how to read the message after a header of gpt-oss; None if it is text for people."""
    if "to=" in header:
        return _HARMONY_CALL
    if "analysis" in header:
        return _HARMONY_THOUGHT
    return _HARMONY_NOTE if "commentary" in header else None


@dataclass(slots=True)
class WrittenCalls:
    """Separates text for people from calls in one streamed answer. The work is linear in the length of the text."""

    tools: Tools
    text_marks: frozenset[str] = frozenset()
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    _held: str = ""
    _format: _Format | None = None
    _body: list[str] = field(default_factory=list[str])
    _rest: str = ""
    _inside: str = ""
    _has_begun: bool = False
    _has_ended: bool = False
    _has_marks: bool = False
    _last: str = ""
    _untracked: list[str] = field(default_factory=list[str])
    _code: CodeTracker = field(default_factory=CodeTracker)

    def feed(self, text: str) -> str:
        """Returns the text that people may read. Holds back what may be the beginning of a call."""
        if self._is_plain(text):
            self._untracked.append(text)
            return text
        shown: list[str] = []
        self._read(text, shown)
        return "".join(shown)

    def close(self, *, is_whole: bool) -> str:
        """Returns the rest of the text. A call without an end counts if it can be read, unless the answer was cut."""
        shown: list[str] = []
        self._has_ended = True
        self._read("", shown)
        text = "".join(self._body) if self._format is _WHOLE_ANSWER else ""
        if text and _is_no_bare_call(text, self.tools):
            self._format, self._body = None, []
            self._read(text, shown)
        is_short = len(self._held) <= SHORT_START_CHARACTERS
        if self._format:
            self._body.append(self._rest)
            self._finish(self._format, "", shown, is_cut=not is_whole)
        elif self._held[:1] == "`" or ((is_short or is_whole) and not self._has_marks):
            shown.append(self._held)
        return "".join(shown)

    def _is_plain(self, text: str) -> bool:
        """Returns whether the text is for people and cannot contain a mark, as most of it."""
        is_between = self._has_begun and not self._held and self._format is None
        return is_between and "<" not in text and "[" not in text and "`" not in text

    def _read(self, text: str, shown: list[str]) -> None:
        text, self._held = self._held + text, ""
        while text:
            text = self._in_call(text, shown) if self._format else self._in_text(text, shown)

    def _in_text(self, text: str, shown: list[str]) -> str:
        if not self._has_begun:
            is_bare = _BARE.match(text) is not None
            may_be_bare = is_bare or _MAY_BE_BARE.fullmatch(text)
            if may_be_bare and len(text) < _HEAD_CHARACTERS and not self._has_ended:
                self._held = text
                return ""
            self._has_begun = True
            if is_bare and _may_name_tool(text[:_HEAD_CHARACTERS], self.tools):
                return self._open(_WHOLE_ANSWER, text)
        found = _START.search(text)
        if found is not None:
            self._show(text[: found.start()], shown)
            return self._at_mark(found.group(), text[found.end() :], shown)
        held = _MAY_START.search(text)
        start = held.group().lower() if held else ""
        is_start = bool(start) and any(one.startswith(start) for one in _STARTS)
        cut = held.start() if held and is_start else len(text)
        self._show(text[:cut], shown)
        self._held = text[cut:]
        return ""

    def _at_mark(self, mark: str, after: str, shown: list[str]) -> str:
        """Takes the mark as text or as the start of a call. Returns the text to read on."""
        self._track_code()
        code = 0 if mark.lower() in self.text_marks else self._code_characters(mark, after)
        if code is None:
            self._held = mark + after
            return ""
        form = _BY_START.get(mark.lower())
        if code < 0 and form is not None:
            return self._after_mark(form, mark, after, shown)
        if code >= 0 or (self._last == " " and not self._has_marks):
            self._show(mark + after[: max(code, 0)], shown)
        return after[max(code, 0) :]

    def _after_mark(self, form: _Format, mark: str, after: str, shown: list[str]) -> str:
        """Opens a call, or shows the mark as soon as it is clear that only a sentence follows."""
        text, place = mark + after, len(mark)
        if form.is_text is not _is_prose:
            return self._open(form, text)
        head = text[: place + _HEAD_CHARACTERS]
        end = re.search(form.end, head, re.IGNORECASE) if form.end else None
        if end is None and len(after) < _HEAD_CHARACTERS and not self._has_ended:
            self._held = text
            return ""
        if not _is_prose(head[place : end.start() if end else None], self.tools):
            return self._open(form, text)
        place = end.end() if end else place
        self._show(text[:place], shown)
        return text[place:]

    def _code_characters(self, mark: str, after: str) -> int | None:
        """Returns how much of the text after the mark is code together with it, -1 if the mark is no code.

        Returns None if that depends on text that has not come yet: open backticks count if the line closes them."""
        is_inside_line = mark[0] == "`" and not self._code.is_line_start
        is_quoted = self._code.is_quote and (self._last in (" ", ">") or mark[:2] == "</")
        if self._code.is_fence or is_inside_line or is_quoted:
            return 0
        if not self._code.is_code:
            return -1
        line = _CODE_OR_LINE_END.match(after, 0, _LINE_CHARACTERS_MAX)
        end = line.end() if line else 0
        if after[end : end + 1] == "`" and end < _LINE_CHARACTERS_MAX:
            return end
        if end == len(after) < _LINE_CHARACTERS_MAX and not self._has_ended:
            return None
        self._code.forget_open_ticks()
        return -1

    def _open(self, form: _Format, text: str) -> str:
        self._format, self._inside = form, form.inside
        return text

    def _in_call(self, text: str, shown: list[str]) -> str:
        """Adds text to the current call. Returns the text after its end."""
        form = self._format
        if form is None or not form.end:
            self._body.append(text)
            return ""
        text, self._rest = self._rest + text, ""
        end = self._find_end(text, form.end)
        if end is None:
            self._body.append(text[: len(text) - len(self._rest)])
            return ""
        self._body.append(text[: end.start()])
        self._finish(form, end.group(), shown)
        return text[end.end() :]

    def _find_end(self, text: str, end: str) -> re.Match[str] | None:
        """Returns the mark that ends the call: not in a string of JSON, and not in the value of a tag."""
        place = 0
        while True:
            if self._inside == "string":
                rest = _STRING_REST.match(text, place)
                place = rest.end() if rest else place
                if text[place : place + 1] != '"':
                    self._rest = text[place:]
                    return None
                self._inside, place = "json", place + 1
            token = _tokens(end, self._inside).search(text, place)
            if token is None:
                self._rest = text[max(place, len(text) - _END_CHARACTERS_MAX) :]
                return None
            if token.lastgroup == "end":
                return token
            kind = token.lastgroup or ""
            self._inside = token[kind].lower() if kind == "value" else kind
            place = token.end()

    def _finish(self, form: _Format, end: str, shown: list[str], *, is_cut: bool = False) -> None:
        """Ends the current call, or what looked like one."""
        body = "".join(self._body)
        self._format, self._body, self._rest = None, [], ""
        if form.is_text and form.is_text(body[len(form.start) :], self.tools):
            self._show(body + end, shown)
            return
        self._has_marks = True
        if form.is_text is _is_no_header and (end or "to=" not in body):
            if follows := _message_format(body):
                self._open(follows, "")
                self._body = [body + end] if follows is _HARMONY_CALL else []
        elif not is_cut and form is not _HARMONY_THOUGHT:
            self._take(form, body + end, shown)

    def _take(self, form: _Format, body: str, shown: list[str]) -> None:
        if calls := list(form.read(body, self.tools) or ()):
            self.calls += calls
        elif _calls_nothing(body, self.tools):
            self._show(body, shown)
        elif not _ONLY_END.fullmatch(body.strip()):
            call = ToolCall(name="", arguments={}, call_id="", raw=body, problem=UNREADABLE)
            self.calls.append(call)

    def _show(self, text: str, shown: list[str]) -> None:
        """Adds text that people may read."""
        if text:
            shown.append(text)
            self._untracked.append(text)

    def _track_code(self) -> None:
        """Follows the code fences and inline code of the text so far; only marks need this."""
        text = "".join(self._untracked)
        self._untracked.clear()
        self._code.feed(text)
        self._last = text[-1:] or self._last
