"""What a message means as a whole: a command such as "use coder" or "forget me", a yes, a no or a stop."""

import re
import unicodedata
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal, cast, get_args

import yaml

CommandName = Literal[
    "stop",
    "status",
    "files",
    "usage",
    "new",
    "forget",
    "export",
    "help",
    "knowledge",
    "plan",
    "use",
    "follow",
    "pair",
    "unpair",
    "who",
    "audit",
    "budget",
    "agents",
    "mcp",
]
_KNOWLEDGE = re.compile(r"knowledge(?:\s+(list|add|remove\s+\S.*))?", re.IGNORECASE)
"""Matches a whole message, because a longer sentence that starts with the word is a request."""
_PLAN = re.compile(r"plan(?:\s+(show|stop|add\s+\S.*|(?:remove|skip)\s+\d{1,3}))?", re.IGNORECASE)
_USE = re.compile(
    r"use\s+(?!(?:this|that|these|those|it|them|both|all|either|neither|none|any|one|the|mine|yours)\b)(\S{1,64})",
    re.IGNORECASE,
)
"""No agent has the name of a pronoun: "use both" answers a question."""
_ADMIN = re.compile(
    r"pair\s+(?P<code>`?[A-HJ-NP-Z2-9]{4}[- ]?[A-HJ-NP-Z2-9]{4}`?)|unpair\s+(?P<argument>\S[^\n]{0,79})"
    r"|(?P<audit>audit)\s+(?P<count>\d{1,9})"
    r"|mcp\s+connect\s+(?P<server>\S{1,64})"
    r"|agents\s+(?P<agents>(?:versions|reset)\s+\S{1,64}|compare\s+\S{1,64}\s+\d{1,6}(?:\s+\d{1,6})?"
    r"|rollback\s+\S{1,64}\s+\d{1,6})"
    r"|budget\s+(?P<limit>(?:run|person|app|channel|workspace)\s+\S{1,20}(?:\s+(?:tokens?|dollars?|usd))?)",
    re.IGNORECASE,
)
_FOLLOW = re.compile(r"follow(?:\s+(?P<mode>default|follow|mention|quiet))?(?:\s+(?P<place>channel))?", re.IGNORECASE)
_FORGET = re.compile(r"forget((?:\s+me)?(?:\s+yes)?)", re.IGNORECASE)
STOP_COMMAND: tuple[CommandName, str] = ("stop", "")
_PLEASE = re.compile(r"[ ,]please[.!]*\Z", re.IGNORECASE)
_SLASH_WORDS_MAX = 3
_SIMILARITY_MIN = 0.75


def parse_command(text: str, *, has_files: bool = False) -> tuple[CommandName, str] | None:
    """Returns the command and its argument if the whole message is a command, else None. With files, only `knowledge`
    is one."""
    words = _PLEASE.sub("", text.strip()).strip(" ,")
    if taught := _KNOWLEDGE.fullmatch(words):
        return "knowledge", taught[1] or ""
    if has_files:
        return None
    if chosen := _USE.fullmatch(words):
        return "use", chosen[1]
    if planned := _PLAN.fullmatch(words):
        return "plan", planned[1] or ""
    if admin := parse_admin_command(words):
        return admin
    if read_word(words) == "stop":
        return STOP_COMMAND
    if (forgets := parse_forget_command(words)) is not None:
        return "forget", forgets
    if follows := parse_follow_command(words):
        return "follow", follows
    word = words.strip(" .!").lower()
    return (cast(CommandName, word), "") if word in get_args(CommandName) else None


def suggest_command(text: str) -> CommandName | None:
    """Returns the command that a few words after a slash command are probably meant to be, although they are none."""
    words = text.lower().split()
    if not words or len(words) > _SLASH_WORDS_MAX or parse_command(text):
        return None
    close = get_close_matches(words[0], get_args(CommandName), n=1, cutoff=_SIMILARITY_MIN)
    return cast(CommandName, close[0]) if close else None


def parse_admin_command(text: str) -> tuple[CommandName, str] | None:
    """Returns the admin command in `text` and its argument, or None if `text` is not an admin command."""
    found = _ADMIN.fullmatch(text.strip())
    if found is None:
        return None
    if found["code"]:
        return "pair", found["code"]
    if found["audit"]:
        return "audit", found["count"]
    if found["agents"]:
        return "agents", found["agents"].replace("`", "")
    if found["server"]:
        return "mcp", f"connect {found['server']}"
    if found["limit"]:
        return "budget", " ".join(found["limit"].split())
    return "unpair", found["argument"]


def parse_forget_command(text: str) -> str | None:
    """Returns what follows `forget` if the whole message is that command, else None."""
    found = _FORGET.fullmatch(text.strip(" .!"))
    return " ".join((found[1] or "").lower().split()) if found else None


def parse_follow_command(text: str) -> str | None:
    """Returns the follow mode that the command sets, followed by " channel" if it is for the whole channel, or None."""
    found = _FOLLOW.fullmatch(text.strip())
    if found is None:
        return None
    mode = found["mode"] or "follow"
    return f"{mode.lower()} {(found['place'] or '').lower()}".strip()


Word = Literal["yes", "no", "stop"]
_WORDS: tuple[Word, ...] = ("yes", "no", "stop")
CHARACTERS_MAX = 60
"""A longer message never means yes, no or stop."""
BLANK = (
    " \t\n\r\v\f\x85\xa0\xad\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\u2800\u3000\u3164\ufeff"
)
"""Spaces, and invisible characters that come with copied text and with keyboards for scripts from right to left."""
_VARIANTS = re.compile("[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff]|:skin-tone-[2-6]:")
_EDGES = f'{BLANK}.,;:!¡…。、！，；：*_`"“”'


def read_word(text: str) -> Word | None:
    """Returns what the whole message means, or None. A question mark or any other word makes it mean something else."""
    if len(text) > CHARACTERS_MAX:
        return None
    word = _plain(text)
    return next((one for one in _WORDS if word in _lists()[one]), None)


def calls_by_name(text: str, name: str) -> bool:
    """Whether the message begins or ends with the name, if need be after a greeting."""
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
