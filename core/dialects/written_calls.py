"""Finds tool calls that a model writes into its text although its API has tool calls, so that users never see them.

Markup inside code fences, inline code and quotes is text, and so is a sentence about a mark."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from core.context.code_tracker import MarkdownCodeTracker
from core.dialects import call_formats
from core.dialects.call_formats import CallFormat, Tools
from core.dialects.dialect import CUT_CHARACTERS_MAX, as_cut_off_call, find_tool_name
from core.domain.ids import new_call_id
from core.domain.messages import ToolCall

SHORT_START_CHARACTERS = 2
"""The end of an answer with at most so many characters is shown, although a call may begin like that."""
_END_CHARACTERS_MAX = 64
_STARTS = (*call_formats.FORMAT_BY_START, *call_formats.CLOSERS)
_BEGINNINGS = frozenset(one[:size] for one in _STARTS for size in range(1, len(one) + 1))
# without ASCII, other letters such as the Kelvin sign would count as lower-case ones
_START = re.compile("|".join(map(re.escape, _STARTS)), re.IGNORECASE | re.ASCII)
_MAY_START = re.compile(r"(?:[<\[]|`{1,3})[^<\[`]{0,30}\Z")
_STRING_REST = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*', re.DOTALL)


@lru_cache(maxsize=128)
def _tokens(end: str, inside: str) -> re.Pattern[str]:
    """Returns the pattern for the end of a call, and for what may hide an end, at one kind of place in a call."""
    value = r"<[^\s<>=]{0,12}?(?P<value>parameter|arg_value)[\s=>]"
    more = {"": rf"|{value}|(?P<json>\{{)", "json": '|(?P<string>")', "tags": f"|{value}"}
    if inside in ("parameter", "arg_value"):
        return re.compile(rf"(?P<tags></[^\s<>]{{0,12}}?{inside}>)", re.IGNORECASE)
    return re.compile(rf"(?P<end>{end}){more.get(inside, '')}", re.IGNORECASE)


@dataclass(slots=True)
class WrittenCalls:
    """Separates text for people from calls in one streamed answer. The work is linear in the length of the text.

    The caller sets `follows_calls` once the answer has a call of another kind. `cut_characters` is how much of half a
    call at the end of the text is left out of the conversation."""

    tools: Tools
    text_marks: frozenset[str] = frozenset()
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    follows_calls: bool = False
    cut_characters: int = 0
    _cut: str = ""
    _held: str = ""
    _format: CallFormat | None = None
    _body: list[str] = field(default_factory=list[str])
    _rest: str = ""
    _inside: str = ""
    _has_begun: bool = False
    _has_ended: bool = False
    _has_marks: bool = False
    _code: MarkdownCodeTracker = field(default_factory=MarkdownCodeTracker)

    def feed(self, text: str) -> str:
        """Returns the text that users may read. Holds back what may be the beginning of a call."""
        is_between = self._has_begun and not self._held and self._format is None
        # most of a text cannot contain a mark
        if is_between and "<" not in text and "[" not in text and "`" not in text:
            self._code.feed(text)
            return text
        shown: list[str] = []
        self._read(text, shown)
        return "".join(shown)

    def close(self, *, is_whole: bool, cut: str = "") -> str:
        """Returns the rest of the text. A call without an end counts if it can be read, unless the answer broke off.

        If a limit cut the answer off, half a call at its end gets `cut` as its problem."""
        shown: list[str] = []
        self._has_ended, self._cut = True, cut
        self._read("", shown)
        if self._format is call_formats.BARE_CALLS:
            calls, text = call_formats.read_bare("".join(self._body), self.tools, is_cut=bool(cut))
            self._add(calls)
            self._format, self._body, self._has_marks = None, [], bool(calls)
            self._read(text, shown)
        is_short = len(self._held) <= SHORT_START_CHARACTERS
        if self._format:
            self._body.append(self._rest)
            self._finish(self._format, "", shown, is_lost=not (is_whole or cut))
        elif self._held[:1] == "`" or ((is_short or is_whole) and not self._has_marks):
            shown.append(self._held)
        return "".join(shown)

    def _read(self, text: str, shown: list[str]) -> None:
        text, self._held = self._held + text, ""
        while text:
            text = self._in_call(text, shown) if self._format else self._in_text(text, shown)

    def _in_text(self, text: str, shown: list[str]) -> str:
        if not self._has_begun:
            is_bare = call_formats.BARE_CALL.match(text) is not None
            may_be_bare = is_bare or call_formats.MAY_BE_BARE.fullmatch(text)
            if may_be_bare and len(text) < call_formats.HEAD_CHARACTERS and not self._has_ended:
                self._held = text
                return ""
            self._has_begun = True
            head = text[: call_formats.HEAD_CHARACTERS]
            # what has ended is read whole: half a call may not name its tool yet
            is_half = self._has_ended and '"' in text
            if may_be_bare and (is_half or call_formats.may_name_tool(head, self.tools)):
                return self._open(call_formats.BARE_CALLS, text)
        found = _START.search(text)
        if found is not None:
            self._show(text[: found.start()], shown)
            return self._at_mark(found.group(), text[found.end() :], shown)
        held = _MAY_START.search(text)
        cut = held.start() if held and held.group().lower() in _BEGINNINGS else len(text)
        self._show(text[:cut], shown)
        self._held = text[cut:]
        return ""

    def _at_mark(self, mark: str, after: str, shown: list[str]) -> str:
        """Takes the mark as text or as the start of a call. Returns the text to read on."""
        is_inside_line = mark[0] == "`" and not self._code.is_line_start
        is_quoted = self._code.is_quote and (self._code.last_character in (" ", ">") or mark[:2] == "</")
        # how much after the mark is code together with it, or -1; open backticks count if the line closes them
        code = 0
        if mark.lower() not in self.text_marks and not is_inside_line and not is_quoted:
            code = self._code.code_length(after, is_end=self._has_ended)
        if code is None:  # that depends on text that has not come yet
            self._held = mark + after
            return ""
        form = call_formats.FORMAT_BY_START.get(mark.lower())
        if code < 0 and form is not None:
            # the mark opens a call, or is shown as soon as it is clear that only a sentence follows
            text, place = mark + after, len(mark)
            if form.is_text is not call_formats.is_prose:
                return self._open(form, text)
            head = text[: place + call_formats.HEAD_CHARACTERS]
            end = re.search(form.end, head, re.IGNORECASE) if form.end else None
            if end is None and len(after) < call_formats.HEAD_CHARACTERS and not self._has_ended:
                self._held = text
                return ""
            if not call_formats.is_prose(head[place : end.start() if end else None], self.tools):
                return self._open(form, text)
            place = end.end() if end else place
            self._show(text[:place], shown)
            return text[place:]
        is_common = self._code.last_character == " " or (
            mark.lower() in call_formats.COMMON_CLOSERS and not self.follows_calls
        )
        if code >= 0 or (is_common and not self._has_marks):
            self._show(mark + after[: max(code, 0)], shown)
        return after[max(code, 0) :]

    def _open(self, form: CallFormat, text: str) -> str:
        self._format, self._inside = form, form.inside
        return text

    def _in_call(self, text: str, shown: list[str]) -> str:
        """Adds text to the current call. Returns the text after its end."""
        form = self._format
        if form is None or not form.end:
            self._body.append(text)
            return ""
        text, self._rest, place = self._rest + text, "", 0
        while True:
            # the call ends neither in a string of JSON nor in the value of a tag
            if self._inside == "string":
                rest = _STRING_REST.match(text, place)
                place = rest.end() if rest else place
                if text[place : place + 1] != '"':
                    break
                self._inside, place = "json", place + 1
            token = _tokens(form.end, self._inside).search(text, place)
            if token is None:
                place = max(place, len(text) - _END_CHARACTERS_MAX)
                break
            if token.lastgroup == "end":
                self._body.append(text[: token.start()])
                self._finish(form, token.group(), shown)
                return text[token.end() :]
            kind = token.lastgroup or ""
            self._inside = token[kind].lower() if kind == "value" else kind
            place = token.end()
        self._body.append(text[:place])
        self._rest = text[place:]
        return ""

    def _finish(self, form: CallFormat, end: str, shown: list[str], *, is_lost: bool = False) -> None:
        """Ends the current call, or what looked like one."""
        body = "".join(self._body)
        self._format, self._body, self._rest = None, [], ""
        if form.is_text and form.is_text(body[len(form.start) :], self.tools):
            self._show(body + end, shown)
            return
        self._has_marks = True
        if form.is_text is call_formats.is_no_header and (end or "to=" not in body):
            if follows := call_formats.message_format(body):
                self._open(follows, "")
                self._body = [body + end] if follows is call_formats.HARMONY_CALL else []
        elif not is_lost and form is not call_formats.HARMONY_THOUGHT:
            body += end
            if calls := list(form.read(body, self.tools) or ()):
                self._add(calls)
            elif call_formats.calls_nothing(body, self.tools):
                self._show(body, shown)
            elif not call_formats.ONLY_END.fullmatch(body.strip()):
                self._add([call_formats.unreadable_call(body)])

    def _add(self, calls: Iterable[ToolCall]) -> None:
        for call in calls:
            is_half = bool(self._cut and call.problem)
            self.cut_characters = max(0, len(call.raw) - CUT_CHARACTERS_MAX) if is_half else 0
            shown_call = as_cut_off_call(call, self._cut) if is_half else call
            self.calls.append(replace(shown_call, name=find_tool_name(call.name, self.tools), call_id=new_call_id()))

    def _show(self, text: str, shown: list[str]) -> None:
        """Adds text that users may read."""
        if text:
            shown.append(text)
            self._code.feed(text)
