"""Telling code from prose in Markdown as it streams: calls inside code fences and inline code are text.

A fence is a run of three or more backticks or tildes at the start of a line (after spaces, quote marks or a list
marker) and ends with a line of at least as many. Inline code ends with a run of as many backticks on the same line.
"""

import re
from dataclasses import dataclass

from core.dialects.xml_lexer import Token

FENCE_LENGTH_MIN = 3
_BEFORE_FENCE = re.compile(r"[ \t>*+\-0-9.)]*+\Z")
_END_OF_CODE = re.compile("`++|\n")


@dataclass(slots=True)
class Prose:
    """Where the reader stands: in a fence, in inline code that may or may not end, or in plain text."""

    _fence: str = ""
    _inline: int = 0
    _may_be_fence: bool = False
    _is_at_line_start: bool = True
    _is_closing_fence: bool = False
    _is_escaped: bool = False

    @property
    def is_fence(self) -> bool:
        return bool(self._fence)

    @property
    def is_undecided(self) -> bool:
        """In inline code, of which only the rest of the line tells whether it is any."""
        return self._inline > 0

    def take_plain(self, text: str) -> None:
        """Text without backticks, tildes, backslashes and tags."""
        before, newline, _ = text.rpartition("\n")
        if newline:
            if self._is_closing_fence and before.partition("\n")[0].strip():
                self._is_closing_fence = False
            self._end_line()
        self._is_escaped = False
        rest = text[len(before) + len(newline) :]
        if self._is_closing_fence and not rest.isspace():
            self._is_closing_fence = False
        if self._is_at_line_start and not _BEFORE_FENCE.match(rest):
            self._is_at_line_start = False

    def take(self, token: Token) -> None:
        """Anything that is shown as text."""
        if token.kind == "newline":
            self._end_line()
        elif token.kind == "ticks":
            self._ticks(token.raw)
        else:
            self._is_escaped = token.raw.endswith("\\")
            if not token.raw.isspace():
                self._is_closing_fence = False
            if not _BEFORE_FENCE.match(token.raw):
                self._is_at_line_start = False

    def call_passed(self) -> None:
        """A call, or a tag around calls, stood here: what follows it is not the start of a line."""
        self._is_at_line_start = self._is_escaped = False

    def decide(self, *, is_code: bool, has_other_run: bool = False) -> None:
        """What the rest of the line told about inline code: whether it ends there. If not, it may begin a fence."""
        if not is_code and self._may_be_fence and not has_other_run:
            self._fence = "`" * self._inline
        self._inline = 0
        self._may_be_fence = False

    @property
    def inline_length(self) -> int:
        return self._inline

    def _end_line(self) -> None:
        if self._inline:
            self.decide(is_code=False)
        elif self._is_closing_fence:
            self._fence = ""
        self._is_at_line_start = True
        self._is_closing_fence = self._is_escaped = False

    def _ticks(self, run: str) -> None:
        at_line_start, self._is_at_line_start = self._is_at_line_start, False
        is_escaped, self._is_escaped = self._is_escaped, False
        if self._fence:
            is_match = run[0] == self._fence[0] and len(run) >= len(self._fence)
            self._is_closing_fence = at_line_start and is_match
        elif self._inline:
            if run[0] == "`":
                self._may_be_fence = False
                self._inline = 0 if len(run) == self._inline else self._inline
        elif run[0] == "~":
            if at_line_start and len(run) >= FENCE_LENGTH_MIN:
                self._fence = run
        else:
            self._inline = len(run) - is_escaped
            self._may_be_fence = at_line_start and self._inline >= FENCE_LENGTH_MIN


class CodeEnd:
    """Looks for the end of inline code in text that comes in pieces; each piece is looked at once.

    `searched`: in so many characters, the rest of the line, there is none.
    """

    __slots__ = ("_carried", "_length", "_pieces", "_seen", "has_other_run", "searched")

    def __init__(self, length: int) -> None:
        self._length = length
        self._pieces: list[str] = []
        self._carried = 0
        self._seen = 0
        self.has_other_run = False
        self.searched: int = 0

    def feed(self, piece: str, *, is_last: bool = False) -> int | None:
        """How many characters belong to the code; 0 if it is none; None until that is known."""
        self._pieces.append(piece)
        text = "`" * self._carried + piece
        start = self._seen - self._carried
        for match in _END_OF_CODE.finditer(text):
            if match.group() == "\n":
                self.searched = start + match.start()
                return 0
            if match.end() == len(text) and not is_last:
                # of a longer run only that it is longer matters
                self._carried = min(len(match.group()), self._length + 1)
                self._seen = start + len(text)
                self.has_other_run = self.has_other_run or self._carried > self._length
                return None
            if len(match.group()) == self._length:
                return start + match.end()
            self.has_other_run = True
        self._carried = 0
        self._seen = self.searched = start + len(text)
        return 0 if is_last else None

    def text(self) -> str:
        """All pieces so far."""
        return "".join(self._pieces)
