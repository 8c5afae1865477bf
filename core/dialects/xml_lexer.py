"""Splits streamed text into plain text and tags of the XML dialect, in linear time."""

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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

# only these entities are decoded, because html.unescape would turn "&copy" in an address into a copyright sign
_ENTITY = re.compile(r"&(?:quot|apos|lt|gt|amp|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")


class Token(NamedTuple):
    """A piece of the text.

    The `raw` texts of all tokens together are the original text. Names are in lower case, and attribute values are
    unescaped."""

    kind: Literal["text", "open", "close", "empty", "ticks", "newline"]
    raw: str
    name: str = ""
    attributes: Mapping[str, str] = NO_ATTRIBUTES


class TagGrammar:
    """Recognizes the tags of the XML dialect.

    `block` includes the tags of `<function_calls>` blocks; `tool_names` are further tag names. With `has_prose`, runs
    of backticks, runs of tildes, and line breaks become separate tokens.
    `spot` matches where a tag or another special token may start."""

    __slots__ = ("_block", "_longest", "_names", "_tool", "_tool_names", "spot")

    def __init__(self, *, block: bool, tool_names: Iterable[str] = (), has_prose: bool = False) -> None:
        self._tool_names = frozenset(name.lower() for name in tool_names)
        names = {*(BLOCK_TAGS if block else ()), *self._tool_names}
        self._names = tuple(names)
        self._longest = max(map(len, names), default=0) + 2
        alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        spots = [rf"<(?=/?(?:{alternatives})[\s/>])", rf"</?{_NAME}*+\Z"]
        if has_prose:
            spots.append("`++|~++|\n")
        self.spot = re.compile("|".join(spots), re.IGNORECASE)
        self._block = _tag_patterns(alternatives, _BLOCK_VALUE, _BLOCK_VALUE_PART)
        self._tool = _tag_patterns(alternatives, _TOOL_VALUE, _TOOL_VALUE_PART)

    def may_begin(self, part: str) -> bool:
        """Returns whether the end of the stream so far (a `<` and the start of a name) may still become a tag."""
        if len(part) > self._longest:
            return False
        name = part.lstrip("</").lower()
        return any(known.startswith(name) for known in self._names)

    def tag(self, text: str, start: int) -> "Token | Literal[False] | None":
        """Returns the tag at this position, None if the tag is still incomplete, or False if there is no valid tag."""
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
    # not a possessive group because Python before 3.11.5 loses its matches; the group can match in only one way
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
        attributes.setdefault(key, _ENTITY.sub(lambda one: html.unescape(one.group()), value))
    return Token("empty" if match["empty"] else "open", match.group(), name, attributes)


class Lexer:
    """Splits text into tokens as it arrives. Holds at most one incomplete tag."""

    __slots__ = ("_buffer", "_has_angle", "_is_closed", "_position", "_waiting")

    def __init__(self) -> None:
        self._buffer = ""
        self._position = 0
        self._waiting: list[str] = []
        self._has_angle = False
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether all text has been returned as tokens."""
        return self._position == len(self._buffer) and not self._waiting

    def feed(self, text: str) -> None:
        """Adds text at the end."""
        self._waiting.append(text)
        if not self._has_angle:
            self._has_angle = ">" in text or "<" in text

    def unread(self, text: str) -> None:
        """Puts text back in front of the remaining text."""
        self._buffer = text + self.take_all()
        self._position = 0

    def take_all(self) -> str:
        """Removes and returns all remaining text."""
        rest = self._buffer[self._position :] + "".join(self._waiting)
        self._waiting.clear()
        self._has_angle = False
        self._buffer, self._position = "", 0
        return rest

    def close(self) -> None:
        """Marks the end of the text, so that an incomplete tag at the end becomes plain text."""
        self._is_closed = True

    def next(self, grammar: TagGrammar) -> Token | None:
        """Returns the next token, or None if more text is needed."""
        if self._waiting and not self._is_worth_joining():
            return None
        if self._waiting:
            self._buffer = self.take_all()
        text, start = self._buffer, self._position
        if start == len(text):
            return None
        spot = grammar.spot.search(text, start)
        if spot is None:
            return self._taken(Token("text", text[start:]))
        if spot.start() > start:
            return self._taken(Token("text", text[start : spot.start()]))
        return self._at_spot(spot, grammar)

    def _is_worth_joining(self) -> bool:
        """Returns whether to parse the held text again.

        A long incomplete tag is parsed again only after a new piece arrives that can end it, so that the total work
        stays linear."""
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
    """Tracks whether the current position is in a Markdown code fence, in possible inline code, or in plain text."""

    _fence: str = ""
    _inline: int = 0
    _may_be_fence: bool = False
    _is_at_line_start: bool = True
    _is_closing_fence: bool = False
    _is_escaped: bool = False
    _open_until: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def is_fence(self) -> bool:
        return bool(self._fence)

    @property
    def is_undecided(self) -> bool:
        """Whether the position follows an opening backtick whose closing backtick has not been found yet."""
        return self._inline > 0

    def take_plain(self, text: str) -> None:
        """Processes text without backticks, tildes, backslashes and tags."""
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

    def feed(self, token: Token) -> None:
        """Processes a token that is shown as text."""
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

    def note_open_until(self, offset: int) -> None:
        """Notes that no closing backticks come before the offset.

        Remembering this keeps the work linear for lines with many backticks."""
        self._open_until[self._inline] = offset

    def is_known_open(self, offset: int) -> bool:
        """Returns whether an earlier search has shown that the line does not close the inline code."""
        return offset < self._open_until.get(self._inline, 0)

    def call_passed(self) -> None:
        """Processes a call or a tag around calls. The text after it does not count as the start of a line."""
        self._is_at_line_start = self._is_escaped = False

    def decide(self, *, is_code: bool, has_other_run: bool = False) -> None:
        """Records whether the undecided backticks start inline code.

        `is_code` states whether the rest of the line closes the inline code. If it does not, the backticks may open a
        code fence, unless the line has other backticks (`has_other_run`)."""
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
    """Searches streamed text for the end of inline code. Each piece is searched only once.

    If the line does not close the inline code, `searched` is the number of characters that were searched."""

    __slots__ = ("_carried", "_length", "_pieces", "_seen", "has_other_run", "searched")

    def __init__(self, length: int) -> None:
        self._length = length
        self._pieces: list[str] = []
        self._carried = 0
        self._seen = 0
        self.has_other_run = False
        self.searched: int = 0

    def feed(self, piece: str, *, is_last: bool = False) -> int | None:
        """Returns how many characters belong to the inline code.

        Returns 0 if the text is not inline code, or None if more text is needed."""
        self._pieces.append(piece)
        text = "`" * self._carried + piece
        start = self._seen - self._carried
        for match in _END_OF_CODE.finditer(text):
            if match.group() == "\n":
                self.searched = start + match.start()
                return 0
            if match.end() == len(text) and not is_last:
                # the exact length of a longer run does not matter
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
        """Returns all pieces received so far."""
        return "".join(self._pieces)
