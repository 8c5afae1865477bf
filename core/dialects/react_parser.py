"""Parses a streamed answer in the ReAct format: thoughts are hidden, actions become calls, and answers are shown."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal, cast

from pydantic import JsonValue

from core.context.code_tracker import MarkdownCodeTracker
from core.dialects.arguments import parse_arguments
from core.dialects.dialect import (
    CUT_CHARACTERS_MAX,
    CallComplete,
    DisplayText,
    ParsedPart,
    as_cut_off_call,
    find_tool_name,
)
from core.domain.ids import new_call_id
from core.domain.messages import ToolCall
from core.ports import TextDelta, ToolCallDelta

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class JsonObjectScanner:
    """Finds the end of a JSON object in streamed text. The total work is linear in the length of the text."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = False
        self._is_escaped = False

    def feed(self, text: str, at: int) -> int | None:
        """Scans the text from `at`. Returns the position after the object's end, or None if it is incomplete."""
        if self._is_escaped and at < len(text):
            self._is_escaped, at = False, at + 1
        while match := (_INSIDE if self._is_string else _OUTSIDE).search(text, at):
            at = match.end()
            match match.group():
                case '"':
                    self._is_string = not self._is_string
                case "\\":
                    self._is_escaped = at == len(text)
                    at += 1
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return None


Label = Literal["Thought", "Action", "Action Input", "Observation", "Final Answer"]
_NAMES = ("Thought", "Action Input", "Action", "Observation", "Final Answer")
_NAME = "|".join(_NAMES)
_START = r"[ \t]{0,8}(?:#{1,4} )?"
_LABEL = re.compile(
    rf"{_START}(?:\*\*(?P<bold>{_NAME})(?:\*\*[ \t]{{0,2}}:|[ \t]{{0,2}}:\*\*)|(?P<plain>{_NAME})[ \t]{{0,2}}:)",
    re.IGNORECASE,
)


def _prefixes(word: str) -> str:
    """Returns a regular expression that matches every prefix of the word, including the empty prefix."""
    pattern = ""
    for character in reversed(word):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return pattern


_BEGUN = "|".join(map(_prefixes, _NAMES))
_PARTIAL = re.compile(
    rf"[ \t]{{0,8}}(?:#{{0,4}}|#{{1,4}} (?:{_BEGUN})|\*{{0,2}}(?:{_BEGUN})"
    rf"|(?:#{{1,4}} )?\*{{0,2}}(?:{_NAME})\*{{0,2}}[ \t]{{0,2}}:?\*?|#{{1,4}} \*{{0,2}}(?:{_BEGUN}))",
    re.IGNORECASE,
)


def match_label(text: str, at: int) -> tuple[Label, int] | None:
    """Returns the label, such as `Action:`, that starts at this position, and the position after it.

    Returns None if there is no label. `at` must be the start of a line."""
    match = _LABEL.match(text, at)
    return (cast(Label, (match["bold"] or match["plain"]).title()), match.end()) if match else None


FENCE_LINE_CHARACTERS_MAX = 32
FENCED_CALL_CHARACTERS = 120
"""The longest name of a tool, and the label of its input on the next line."""
_State = Literal["prose", "thought", "name", "expected", "lead", "object", "raw", "after", "answer"]


class ReactParser:
    """Parses one streamed answer in the ReAct format.

    The total work is linear in the length of the text, regardless of how the text was split. Text before the first
    label is shown to people, and thoughts are hidden. If the answer consists only of thoughts, they are shown, so that
    the model's last message is not lost. Text after an `Observation:` label that the model invented is ignored."""

    def __init__(self, tools: Collection[str], *, calls_max: int = 0) -> None:
        self._tools = tools
        self._calls_max = calls_max
        self._state: _State = "prose"
        self._raw: list[str] = []
        self._buffer, self._at, self._passed = "", 0, 0
        self._is_line_start = True
        self._code = MarkdownCodeTracker()
        self._is_ending = self._is_done = False
        self._object = JsonObjectScanner()
        self._call_start: int | None = None
        self._call_raw: list[str] = []
        self._name: list[str] = []
        self._input: list[str] = []
        self._calls_count = 0
        self._stored_end: int | None = None
        self._thoughts: list[str] = []
        self._has_shown = False
        self._parsed: list[ParsedPart] = []

    @property
    def raw_answer(self) -> str:
        """The original text of the answer, up to the position where parsing stopped."""
        raw = "".join(self._raw)
        return raw if self._stored_end is None else raw[: self._stored_end].rstrip()

    def feed(self, delta: TextDelta | ToolCallDelta) -> Sequence[ParsedPart]:
        """Returns the text and calls that are certain after this delta. Native tool calls are ignored."""
        if isinstance(delta, ToolCallDelta) or self._is_done or not delta.text:
            return ()
        self._raw.append(delta.text)
        self._passed += self._at
        self._buffer, self._at = self._buffer[self._at :] + delta.text, 0
        self._read()
        return self._taken()

    def close(self, *, is_whole: bool, cut: str = "") -> Sequence[ParsedPart]:
        """Returns the remaining text and calls at the end of the answer.

        A call without an input gets empty arguments. If the answer was interrupted, an incomplete call is discarded. If
        a limit cut the answer off, the incomplete call is returned with `cut` as its problem."""
        if self._is_done:
            return ()
        self._is_ending = True
        if is_whole or not self._is_doubtful():
            self._read()
        if self._call_start is not None:
            if is_whole:
                self._complete()
            elif cut:
                start = self._call_start
                self._complete()
                last = self._parsed.pop()
                if isinstance(last, CallComplete):
                    self._parsed.append(replace(last, call=as_cut_off_call(last.call, cut)))
                self._stored_end = start + CUT_CHARACTERS_MAX
            else:
                self._stored_end = self._call_start
        if not self._calls_count and not self._has_shown:
            self._show("".join(self._thoughts).strip())
        if is_whole and not self._is_done:
            self._stored_end = None
        self._is_done = True
        return self._taken()

    def _read(self) -> None:
        while not self._is_done and self._at < len(self._buffer):
            if self._state in ("expected", "lead") and self._skip_space():
                continue
            match self._state:
                case "name":
                    newline = self._buffer.find("\n", self._at)
                    self._name.append(self._take(newline if newline >= 0 else len(self._buffer)))
                    if newline >= 0:
                        self._take(newline + 1)
                        self._state = "expected"
                case "expected" if self._is_line_start and self._buffer[self._at] == "{":
                    self._state = "lead"  # the label of the input is optional before a JSON object
                case "lead" if self._buffer[self._at] == "{":
                    self._state, self._object = "object", JsonObjectScanner()
                case "lead":
                    fence, line_end, _ = self._buffer[self._at : self._at + FENCE_LINE_CHARACTERS_MAX].partition("\n")
                    is_unread = not line_end and len(fence) < FENCE_LINE_CHARACTERS_MAX and not self._is_ending
                    if is_unread and (fence.startswith("```") or "```".startswith(fence)):
                        return
                    if fence.startswith("```") and line_end:
                        self._take(self._at + len(fence) + 1)
                    else:
                        self._state = "raw"
                case "object":
                    end = self._object.feed(self._buffer, self._at)
                    self._input.append(self._take(len(self._buffer) if end is None else end))
                    if end is not None:
                        self._complete()
                case _:
                    if not self._read_line():
                        return

    def _is_doubtful(self) -> bool:
        """Whether more text is needed to decide if `Action:` or another label, or a code fence, starts here.

        Text that may become a label has a bounded length."""
        return self._is_line_start and _PARTIAL.fullmatch(self._buffer, self._at) is not None

    def _read_line(self) -> bool:
        """Reads one line, or the part of the line that has arrived."""
        if self._is_line_start and self._state != "answer":
            found = match_label(self._buffer, self._at)
            if found is not None and self._code.is_fence:
                begins = self._begins_call(*found)
                if begins is None:
                    return False
                found = found if begins else None
            if found is not None:
                self._begin(*found)
                return True
            if not self._is_ending and self._is_doubtful():
                return False
        newline = self._buffer.find("\n", self._at)
        text = self._take(newline + 1 if newline >= 0 else len(self._buffer))
        if self._state in ("prose", "thought"):
            self._code.feed(text)
        match self._state:
            case "prose" | "answer":
                self._show(text if self._has_shown else text.lstrip())
            case "thought":
                self._thoughts.append(text)
            case "raw":
                self._input.append(text)
            case _:
                pass
        return True

    def _begins_call(self, label: Label, end: int) -> bool | None:
        """Whether a line in a code fence, where other labels are text, begins a call: it names a tool alone, and the
        next line has its input. None if that has not been read yet."""
        name, _, rest = self._buffer[end : end + FENCED_CALL_CHARACTERS].partition("\n")
        following = match_label(rest, 0)
        if label == "Action" and following is not None and following[0] == "Action Input":
            return name.strip().strip("`") in self._tools
        is_read = self._is_ending or len(self._buffer) - end >= FENCED_CALL_CHARACTERS
        return False if is_read or label != "Action" else None

    def _begin(self, label: Label, end: int) -> None:
        """Starts the section of a label, such as `Action:`, and ends the previous section."""
        if label == "Action Input" and self._state == "expected":
            self._take(end)
            self._state = "lead"
            return
        if self._call_start is not None:
            self._complete()
            if self._is_done:
                return
        if label == "Observation" or (label == "Final Answer" and self._calls_count):
            self._stored_end = self._passed + self._at
            self._is_done = True
            return
        self._code = MarkdownCodeTracker()
        if label in ("Action", "Action Input"):
            self._call_start = self._passed + self._at
            self._call_raw.clear()
        self._take(end)
        states: dict[Label, _State] = {
            "Thought": "after" if self._calls_count else "thought",
            "Action": "name",
            "Action Input": "lead",
            "Final Answer": "answer",
        }
        self._state = states[label]

    def _take(self, end: int) -> str:
        text = self._buffer[self._at : end]
        self._at = end
        if self._call_start is not None:
            self._call_raw.append(text)
        if text:
            self._is_line_start = text.endswith("\n")
        return text

    def _skip_space(self) -> bool:
        """Skips white space and returns whether there was any.

        A position after indentation still counts as the start of a line."""
        end, was_start = self._at, self._is_line_start
        while end < len(self._buffer) and self._buffer[end].isspace():
            end += 1
        if end == self._at:
            return False
        self._is_line_start = "\n" in self._take(end) or was_start
        return True

    def _show(self, text: str) -> None:
        if text:
            self._has_shown = True
            self._parsed.append(DisplayText(text=text))

    def _complete(self) -> None:
        name = find_tool_name("".join(self._name).strip().strip("`\"'*[]() "), self._tools)
        arguments, problem = dict[str, JsonValue](), None
        try:
            arguments = parse_arguments("".join(self._input))
        except ValueError as error:
            problem = str(error)
        if not name:
            arguments, problem = {}, "An Action line must name the tool. Nothing was run."
        call = ToolCall(
            name=name, arguments=arguments, call_id=new_call_id(), raw="".join(self._call_raw).strip(), problem=problem
        )
        self._parsed.append(CallComplete(index=self._calls_count, call=call))
        self._calls_count += 1
        self._name.clear()
        self._input.clear()
        self._call_start = None
        self._stored_end = self._passed + self._at
        self._state = "after"
        self._is_done = self._calls_count == self._calls_max

    def _taken(self) -> Sequence[ParsedPart]:
        parsed, self._parsed = self._parsed, []
        return parsed
