"""Splits streamed text into plain text and tags of the XML dialect, in linear time."""

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

# only these entities are decoded, because html.unescape would turn "&copy" in an address into a copyright sign
_ENTITY = re.compile(r"&(?:quot|apos|lt|gt|amp|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")


class Token(NamedTuple):
    """A piece of the text.

    The `raw` texts of all tokens together are the original text. Names are in lower case, and attribute values are
    unescaped."""

    kind: Literal["text", "open", "close", "empty"]
    raw: str
    name: str = ""
    attributes: Mapping[str, str] = NO_ATTRIBUTES


class TagGrammar:
    """Recognizes the tags of the XML dialect.

    `block` includes the tags of `<function_calls>` blocks; `tool_names` are further tag names. `spot` matches where a
    tag may start."""

    __slots__ = ("_block", "_longest", "_names", "_tool", "_tool_names", "spot")

    def __init__(self, *, block: bool, tool_names: Iterable[str] = ()) -> None:
        self._tool_names = frozenset(name.lower() for name in tool_names)
        names = {*(BLOCK_TAGS if block else ()), *self._tool_names}
        self._names = tuple(names)
        self._longest = max(map(len, names), default=0) + 2
        alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self.spot = re.compile(rf"<(?=/?(?:{alternatives})[\s/>])|</?{_NAME}*+\Z", re.IGNORECASE)
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
            name = found["name"].lower()
            if found["slash"]:
                return Token("close", found.group(), name)
            attributes: dict[str, str] = {}
            for attribute in _ATTRIBUTE.finditer(found["attributes"]):
                key, double, single, bare = attribute.groups()
                value = next(one for one in (double, single, bare) if one is not None)
                attributes.setdefault(key, _ENTITY.sub(lambda one: html.unescape(one.group()), value))
            return Token("empty" if found["empty"] else "open", found.group(), name, attributes)
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

    def unread(self, token: Token) -> None:
        """Puts back the token that was returned last."""
        self._position -= len(token.raw)

    def peek(self, characters: int) -> str:
        """Returns the beginning of the text after the token that was returned last."""
        return self._buffer[self._position : self._position + characters]

    def take(self, characters: int) -> str:
        """Removes and returns text as `peek` shows it, without looking for tags."""
        self._position += characters
        return self._buffer[self._position - characters : self._position]

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
        text, start = self._buffer, self._position
        found = spot.group()
        if len(found) > 1 or start + 1 == len(text):
            if not self._is_closed and grammar.may_begin(found):
                return None
            return self._taken(Token("text", found))
        tag = grammar.tag(text, start)
        if tag is None and not self._is_closed:
            return None
        return self._taken(tag or Token("text", "<"))

    def _is_worth_joining(self) -> bool:
        """Returns whether to parse the held text again.

        A long incomplete tag is parsed again only after a new piece arrives that can end it, so that the total work
        stays linear."""
        held = len(self._buffer) - self._position
        if held < BLOCK_TAG_CHARACTERS_MAX // 4 or self._is_closed:
            return True
        return self._has_angle or len(self._waiting) > held // 8

    def _taken(self, token: Token) -> Token:
        self._position += len(token.raw)
        return token
