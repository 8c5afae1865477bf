"""Recognises commands that people write as messages, such as "use coder" or "forget me".

A command is the whole message, because a sentence that begins like one ("plan a trip") is a request to the agent.
"""

import re
from typing import cast, get_args

from bots.inbound.actions import CommandName
from bots.inbound.phrases import is_stop_wish, read_follow_mode

_PLAN = re.compile(r"plan(?:\s+(show|stop|add\s+\S.*|(?:remove|skip)\s+\d{1,3}))?", re.IGNORECASE)
_USE = re.compile(
    r"use\s+(?!(?:this|that|these|those|it|them|both|all|either|neither|none|any|one|the|mine|yours)\b)(\S{1,64})",
    re.IGNORECASE,
)
"""No agent has the name of a pronoun: "use both" answers a question."""
_ADMIN = re.compile(
    r"pair\s+(?P<code>`?[A-HJ-NP-Z2-9]{4}-?[A-HJ-NP-Z2-9]{4}`?)|unpair\s+(?P<argument>\S{1,64})"
    r"|(?P<audit>audit)\s+(?P<count>\d{1,3})"
    r"|mcp\s+connect\s+(?P<server>\S{1,64})"
    r"|agents\s+(?P<agents>(?:versions|reset)\s+\S{1,64}|compare\s+\S{1,64}\s+\d{1,6}(?:\s+\d{1,6})?"
    r"|rollback\s+\S{1,64}\s+\d{1,6})"
    r"|budget\s+(?P<limit>(?:run|person|app|channel|workspace)\s+\S{1,20}(?:\s+(?:tokens?|dollars?|usd))?)",
    re.IGNORECASE,
)
_FOLLOW = re.compile(
    r"follow(?:\s+(?P<mode>follow|mention|quiet))?(?:\s+(?P<place>channel))?", re.IGNORECASE
)
_FORGET = re.compile(r"forget((?:\s+me)?(?:\s+yes)?)", re.IGNORECASE)
STOP_COMMAND: tuple[CommandName, str] = ("stop", "")


def parse_command(text: str) -> tuple[CommandName, str] | None:
    """Returns the command and its argument if the whole message is a command, else None."""
    words = text.strip()
    if chosen := _USE.fullmatch(words):
        return "use", chosen[1]
    if planned := _PLAN.fullmatch(words):
        return "plan", planned[1] or ""
    if admin := parse_admin_command(words):
        return admin
    if is_stop_wish(words):
        return STOP_COMMAND
    if (forgets := parse_forget_command(words)) is not None:
        return "forget", forgets
    if follows := parse_follow_command(words):
        return "follow", follows
    word = words.strip(" .!").lower()
    return (cast(CommandName, word), "") if word in get_args(CommandName) else None


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
    """Returns the follow mode that the message sets, followed by " channel" if it is for the whole channel, or None.

    The message is a command ("follow mention"), or says the same in words ("stay quiet here").
    """
    found = _FOLLOW.fullmatch(text.strip())
    if found is not None:
        mode = found["mode"] or "follow"
        return f"{mode.lower()} {(found['place'] or '').lower()}".strip()
    mode, is_whole_channel = read_follow_mode(text)
    return mode and (f"{mode} channel" if is_whole_channel else mode)
