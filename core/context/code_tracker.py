"""Tracks which parts of a streamed Markdown text are code, so that markup inside of code is treated as text."""

import re
from dataclasses import dataclass, field

LINE_START_CHARACTERS = 40
CODE_CHARACTERS_MAX = 2_000
"""Backticks that are not closed within this many characters count as text."""
_TICKS = re.compile("`+")
_FENCE = re.compile(r"((?:>\s*+)*)((?:(?:[*+-]|\d{1,9}[.)])\s+)*)(`{3,}(?=[^`]*\Z)|~{3,})(.*)")
"""A code fence may begin after the marks of a quotation or a list item. It ends in a line of its own."""
_CODE_OR_LINE_END = re.compile(r'[^`\n{]*+(?:\{(?:[^`\n"]++|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"?)*)?')


@dataclass(slots=True)
class MarkdownCodeTracker:
    """Determines whether the text that follows is inside of a code fence or inline code. The total work is linear in
    the length of the text, and is done only when one of the properties is read."""

    _unread: list[str] = field(default_factory=list[str])
    _fence: str = ""
    _line_start: str = ""
    _open_ticks: int = 0
    _last_ticks: int = 0
    _last: str = ""

    def feed(self, text: str) -> None:
        """Adds the next piece of the text."""
        self._unread.append(text)

    @property
    def is_code(self) -> bool:
        """Whether the text that follows is code, provided that the open backticks in the line are closed."""
        self._read()
        return bool(self._fence) or self._open_ticks != self._last_ticks

    @property
    def is_fence(self) -> bool:
        self._read()
        return bool(self._fence)

    @property
    def is_quote(self) -> bool:
        """Whether the current line is a quotation."""
        self._read()
        return self._line_start.lstrip().startswith(">")

    @property
    def is_line_start(self) -> bool:
        """Whether the current line is still empty."""
        self._read()
        return not self._line_start.strip()

    @property
    def last_character(self) -> str:
        self._read()
        return self._last

    def code_length(self, after: str, *, is_end: bool) -> int | None:
        """Returns how many characters of `after`, the text that follows, are code, or -1 if it does not begin with
        code. Returns None if that depends on text that has not arrived yet, because open backticks count only if the
        line closes them.

        `after` may be truncated at CODE_CHARACTERS_MAX. `is_end` means that no more text will follow."""
        if self.is_fence:
            return 0
        if not self.is_code:
            return -1
        line = _CODE_OR_LINE_END.match(after, 0, CODE_CHARACTERS_MAX)
        end = line.end() if line else 0
        if after[end : end + 1] == "`" and end < CODE_CHARACTERS_MAX:
            return end
        if end == len(after) < CODE_CHARACTERS_MAX and not is_end:
            return None
        self._forget_open_ticks()
        return -1

    def _read(self) -> None:
        if not self._unread:
            return
        text = "".join(self._unread)
        self._unread.clear()
        self._last = text[-1:] or self._last
        *ended, rest = text.split("\n")
        for line in ended:
            self._add_to_line(line)
            mark = _FENCE.match(self._line_start.strip())
            if mark and not self._fence:
                self._fence = mark[3]
            elif mark and not (mark[2] or mark[4]) and mark[3].startswith(self._fence):
                self._fence = ""
            self._line_start = ""
            self._forget_open_ticks()
        self._add_to_line(rest)

    def _forget_open_ticks(self) -> None:
        self._open_ticks = self._last_ticks = 0

    def _add_to_line(self, text: str) -> None:
        self._line_start = (self._line_start + text[:LINE_START_CHARACTERS])[:LINE_START_CHARACTERS]
        end = 0
        for ticks in _TICKS.finditer(text):
            if ticks.start():
                self._end_ticks()
            self._last_ticks += len(ticks.group())
            end = ticks.end()
        if end < len(text):
            self._end_ticks()

    def _end_ticks(self) -> None:
        if self._last_ticks and self._open_ticks in (0, self._last_ticks):
            self._open_ticks = 0 if self._open_ticks else self._last_ticks
        self._last_ticks = 0
