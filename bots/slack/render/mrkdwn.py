"""Slack's mrkdwn text as plain words for the model, and the model's words made harmless for Slack."""

import re
from collections.abc import Mapping

_TOKEN = re.compile(r"<(?P<inside>[^<>\n]+)>|&(?P<entity>amp|lt|gt);")
_PERSON = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}
_CALL = re.compile(
    r"<(?=!(?:channel|here|everyone|group|subteam|date)\b|@[A-Za-z0-9]|#[CG][A-Z0-9])"
)
_CROWD = re.compile(r"(?<!\w)@(?=(?:channel|here|everyone|group)\b)", re.IGNORECASE)


def people_mentioned(mrkdwn: str) -> set[str]:
    """The ids of everybody whom the text mentions."""
    return set(_PERSON.findall(mrkdwn))


def plain(mrkdwn: str, names: Mapping[str, str], *, without: str = "") -> str:
    """The text as its writer saw it: mentions as @name, links as `label (url)`, entities resolved.

    Mentions of the person `without` are taken out.
    """
    if without:
        mention = rf"<@{re.escape(without)}(?:\|[^<>]*)?>"
        mrkdwn = re.sub(rf"^\s*{mention}[\s:,]*", "", mrkdwn)
        mrkdwn = re.sub(rf"[ \t]*{mention}[ \t]*", " ", mrkdwn)
    return _TOKEN.sub(lambda match: _resolved(match, names), mrkdwn).strip()


def _resolved(match: re.Match[str], names: Mapping[str, str]) -> str:
    if match["entity"]:
        return _ENTITIES[match["entity"]]
    target, _, label = match["inside"].partition("|")
    label = unescape(label)
    kind, rest = target[:1], unescape(target[1:])
    if kind == "@":
        return f"@{names.get(rest) or label.lstrip('@') or rest}"
    if kind == "#":
        return f"#{label.lstrip('#') or rest}"
    if kind == "!":
        return label or f"@{rest.partition('^')[0]}"
    return _link(unescape(target), label)


def _link(target: str, label: str) -> str:
    shown = target.removeprefix("mailto:").removeprefix("tel:")
    bare = shown.removeprefix("https://").removeprefix("http://").rstrip("/")
    if not label or label.rstrip("/") in {shown, bare, target}:
        return shown
    return f"{label} ({shown})"


def unescape(mrkdwn: str) -> str:
    """Resolves the three entities that Slack escapes."""
    return mrkdwn.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def escape(words: str) -> str:
    """Words that stay words in a mrkdwn field: no control sequence survives, and no @here."""
    return entities(_CROWD.sub("＠", words))


def entities(words: str) -> str:
    """The words with the three entities in place of what Slack escapes."""
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def harmless(markdown: str) -> str:
    """Markdown that can ping nobody: the signs that start a mention become look-alikes, the length stays."""
    return _CROWD.sub("＠", _CALL.sub("‹", markdown))
