"""Cutting streamed text into plain pieces and the tags of the XML dialect, in linear time."""

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

BLOCK_TAGS = ("function_calls", "invoke", "parameter")
BLOCK_TAG_CHARACTERS_MAX = 1_000
TOOL_TAG_CHARACTERS_MAX = 20_000
NO_ATTRIBUTES: Mapping[str, str] = {}

_NAME = r"[\w:.-]"
_BLOCK_VALUE = r"""(?:"[^"<>\n]*+"|'[^'<>\n]*+'|[^\s"'<>=/]++)"""
_BLOCK_VALUE_PART = r"""(?:"[^"<>\n]*+|'[^'<>\n]*+)?"""
_TOOL_VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^\s"'<>=]++)"""
_TOOL_VALUE_PART = r"""(?:"[^"]*+|'[^']*+)?"""
_ATTRIBUTE = re.compile(rf"""\s({_NAME}++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'<>=]++))""")

# only these: html.unescape alone would turn the "&copy" of an address into a sign
_ENTITY = re.compile(r"&(?:quot|apos|lt|gt|amp|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")


class Token(NamedTuple):
    """A piece of the text. `raw` of all tokens together is the text; names are in lower case, attributes unescaped."""

    kind: Literal["text", "open", "close", "empty", "ticks", "newline"]
    raw: str
    name: str = ""
    attributes: Mapping[str, str] = NO_ATTRIBUTES


class TagGrammar:
    """Which tags count. `has_prose`: runs of backticks and tildes, and line ends, are tokens of their own."""

    __slots__ = ("_block", "_longest", "_names", "_spot", "_tool", "_tool_names")

    def __init__(
        self, *, block: bool, tool_names: Iterable[str] = (), has_prose: bool = False
    ) -> None:
        self._tool_names = frozenset(name.lower() for name in tool_names)
        names = {*(BLOCK_TAGS if block else ()), *self._tool_names}
        self._names = tuple(names)
        self._longest = max(map(len, names), default=0) + 2
        alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        spots = [rf"<(?=/?(?:{alternatives})[\s/>])", rf"</?{_NAME}*+\Z"]
        if has_prose:
            spots.append("`++|~++|\n")
        self._spot = re.compile("|".join(spots), re.IGNORECASE)
        self._block = _tag_patterns(alternatives, _BLOCK_VALUE, _BLOCK_VALUE_PART)
        self._tool = _tag_patterns(alternatives, _TOOL_VALUE, _TOOL_VALUE_PART)

    def spot(self, text: str, start: int) -> re.Match[str] | None:
        """The next place that is, or may become, more than text."""
        return self._spot.search(text, start)

    def may_begin(self, part: str) -> bool:
        """Whether the text, a `<` and a part of a name at the end of the stream so far, may become a tag."""
        if len(part) > self._longest:
            return False
        name = part.lstrip("</").lower()
        return any(known.startswith(name) for known in self._names)

    def tag(self, text: str, start: int) -> "Token | Literal[False] | None":
        """The tag at the place; None if it is not whole yet, False if it will never be one."""
        named = _TAG_NAME.match(text, start)
        is_tool = named is not None and named.group(1).lower() in self._tool_names
        whole, part = self._tool if is_tool else self._block
        found = whole.match(text, start)
        if found is not None:
            return _tag_token(found)
        length_max = TOOL_TAG_CHARACTERS_MAX if is_tool else BLOCK_TAG_CHARACTERS_MAX
        if len(text) - start <= length_max and part.match(text, start):
            return None
        return False


_TAG_NAME = re.compile(rf"</?({_NAME}++)")


def _tag_patterns(names: str, value: str, part: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    # the group itself is not possessive: Python before 3.11.5 loses such groups; there is one way to match it anyhow
    attributes = rf"(?:\s++{_NAME}++\s*+=\s*+{value})*"
    whole = rf"<(?P<slash>/)?(?P<name>{names})(?P<attributes>{attributes})\s*+(?P<empty>/)?>"
    partial = rf"</?(?:{names}){attributes}(?:\s*+/?|\s++{_NAME}++\s*+(?:=\s*+{part})?)\Z"
    return re.compile(whole, re.IGNORECASE), re.compile(partial, re.IGNORECASE)


def _tag_token(match: re.Match[str]) -> Token:
    name = match["name"].lower()
    if match["slash"]:
        return Token("close", match.group(), name)
    attributes: dict[str, str] = {}
    for attribute in _ATTRIBUTE.finditer(match["attributes"]):
        key, double, single, bare = attribute.groups()
        value = next(one for one in (double, single, bare) if one is not None)
        attributes.setdefault(key, _ENTITY.sub(_unescaped, value))
    return Token("empty" if match["empty"] else "open", match.group(), name, attributes)


def _unescaped(match: re.Match[str]) -> str:
    return html.unescape(match.group())


class Lexer:
    """Holds the text that no token was made of yet: at most a tag that has begun."""

    __slots__ = ("_buffer", "_has_angle", "_is_closed", "_position", "_waiting")

    def __init__(self) -> None:
        self._buffer = ""
        self._position = 0
        self._waiting: list[str] = []
        self._has_angle = False
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether all text has become tokens."""
        return self._position == len(self._buffer) and not self._waiting

    def feed(self, text: str) -> None:
        """Adds text."""
        self._waiting.append(text)
        if not self._has_angle:
            self._has_angle = ">" in text or "<" in text

    def unread(self, text: str) -> None:
        """Puts text back in front of all that is left."""
        self._buffer = text + self.take_all()
        self._position = 0

    def take_all(self) -> str:
        """Everything that is left, which is thereby gone from here."""
        rest = self._buffer[self._position :] + "".join(self._waiting)
        self._waiting.clear()
        self._has_angle = False
        self._buffer, self._position = "", 0
        return rest

    def close(self) -> None:
        """No more text comes: a tag that has only begun is text."""
        self._is_closed = True

    def next(self, grammar: TagGrammar) -> Token | None:
        """The next token, or None until more text comes."""
        if self._waiting and not self._is_worth_joining():
            return None
        if self._waiting:
            self._buffer = self.take_all()
        text, start = self._buffer, self._position
        if start == len(text):
            return None
        spot = grammar.spot(text, start)
        if spot is None:
            return self._taken(Token("text", text[start:]))
        if spot.start() > start:
            return self._taken(Token("text", text[start : spot.start()]))
        return self._at_spot(spot, grammar)

    def _is_worth_joining(self) -> bool:
        """A tag that has begun is looked at again only when a piece came that can end it."""
        held = len(self._buffer) - self._position
        if held < BLOCK_TAG_CHARACTERS_MAX // 4 or self._is_closed:
            return True
        return self._has_angle or len(self._waiting) > held // 8

    def _at_spot(self, spot: re.Match[str], grammar: TagGrammar) -> Token | None:
        text, start = self._buffer, self._position
        found = spot.group()
        if found[0] in "`~":
            if spot.end() == len(text) and not self._is_closed:
                return None
            return self._taken(Token("ticks", found))
        if found == "\n":
            return self._taken(Token("newline", found))
        if len(found) > 1 or start + 1 == len(text):
            if not self._is_closed and grammar.may_begin(found):
                return None
            return self._taken(Token("text", found))
        tag = grammar.tag(text, start)
        if tag is None and not self._is_closed:
            return None
        return self._taken(tag or Token("text", "<"))

    def _taken(self, token: Token) -> Token:
        self._position += len(token.raw)
        return token


FENCE_LENGTH_MIN = 3
_BEFORE_FENCE = re.compile(r"[ \t>*+\-0-9.)]*+\Z")
_END_OF_CODE = re.compile("`++|\n")


@dataclass(slots=True)
class CodeTracker:
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


class InlineCodeEnd:
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
