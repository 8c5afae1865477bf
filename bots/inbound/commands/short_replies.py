"""Recognizes messages that consist of a yes, a no or a stop, and messages that call the agent by its name."""

import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

ShortReply = Literal["yes", "no", "stop"]
_WORDS: tuple[ShortReply, ...] = ("yes", "no", "stop")
CHARACTERS_MAX = 60
"""A longer message never means yes, no or stop."""
BLANK = (
    " \t\n\r\v\f\x85\xa0\xad\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\u2800\u3000\u3164\ufeff"
)
"""Spaces, and invisible characters that are found in copied text and are typed by keyboards for right-to-left
scripts."""
_VARIANTS = re.compile("[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff]|:skin-tone-[2-6]:")
_EDGES = f'{BLANK}.,;:!¡…。、！，；：*_`"“”'


def read_yes_no_stop(text: str) -> ShortReply | None:
    """Returns whether the whole message means yes, no or stop. Returns None if it contains a question mark or any other
    word."""
    if len(text) > CHARACTERS_MAX:
        return None
    word = _plain(text)
    return next((one for one in _WORDS if word in _lists()[one]), None)


def calls_agent_by_name(text: str, name: str) -> bool:
    """Whether the message begins or ends with the name. A greeting may precede the name."""
    words = " ".join(text[:CHARACTERS_MAX].casefold().split()).lstrip(_EDGES + "@")
    first, _, rest = words.partition(" ")
    if first.strip(_EDGES) in _lists()["greeting"]:
        words = rest.lstrip("@")
    end = " ".join(text[-CHARACTERS_MAX:].casefold().split()).rstrip(_EDGES + "?？")
    name = name.casefold()
    if not name:
        return False
    begins = words.startswith(name) and not words[len(name) : len(name) + 1].isalnum()
    before = end[: -len(name)][-1:]
    return begins or (end.endswith(name) and not before.isalnum())


def greeting_pattern() -> str:
    """Returns a regular expression that matches each greeting."""
    return "|".join(map(re.escape, sorted(_lists()["greeting"])))


@cache
def _lists() -> Mapping[str, frozenset[str]]:
    lists = yaml.safe_load((files("bots.inbound.commands") / "words.yaml").read_text("utf-8"))
    return {
        meaning: frozenset(_plain(word) for line in lines for word in line.split(","))
        for meaning, lines in lists.items()
    }


def _plain(text: str) -> str:
    plain = unicodedata.normalize("NFC", _VARIANTS.sub("", text)).casefold().replace("’", "'")
    return " ".join(re.sub("[,，、]", " ", plain).split()).strip(_EDGES)
