"""Cutting streamed text into plain pieces and the tags of the XML dialect, in linear time."""

import html
import re
from collections.abc import Iterable, Mapping
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


class Grammar:
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

    def next(self, grammar: Grammar) -> Token | None:
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

    def _at_spot(self, spot: re.Match[str], grammar: Grammar) -> Token | None:
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
