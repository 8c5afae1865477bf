"""Converts Slack's mrkdwn and rich text to plain text, and escapes the model's text for Slack; pure functions."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from bots.inbound.commands.short_replies import greeting_pattern
from bots.slack.events.payload_fields import get_object, get_objects, get_text
from core.domain.json import JsonObject
from core.domain.outside_text import separate_address_marks, show_hidden_target

_TOKEN = re.compile(r"<(?P<inside>[^<>\n]+)>|&(?P<entity>amp|lt|gt);")
_PERSON = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_FIRST_MENTION = re.compile(
    rf"[\s\W]{{0,4}}?(?:(?:{greeting_pattern()})\s+)?"
    r"<(?:@(?P<user>[UW][A-Z0-9]+)|!(?:subteam|here|channel|everyone))",
    re.IGNORECASE,
)
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}
_MENTION_START = re.compile(r"<(?=!(?:channel|here|everyone|group|subteam|date)\b|[@#][A-Z][A-Z0-9]+[|>])")
_BROADCAST = re.compile(r"(?<![^\W_])@(?=(?:channel|here|everyone|group)(?![^\W_]))", re.IGNORECASE)


def mentioned_user_ids(mrkdwn: str) -> set[str]:
    return set(_PERSON.findall(mrkdwn))


def begins_with_other_mention(mrkdwn: str, own_id: str) -> bool:
    """Whether the text begins with a mention of a user other than `own_id`, of a user group or of everybody."""
    found = _FIRST_MENTION.match(mrkdwn)
    return found is not None and found["user"] != own_id


def mrkdwn_to_text(mrkdwn: str, names: Mapping[str, str], *, removed_user_id: str = "") -> str:
    """Returns the text as its author saw it: mentions as @name and entities unescaped. If a link's label hides its
    target, adds the target.

    Removes mentions of the user whose id is `without`."""
    if removed_user_id:
        mention = rf"<@{re.escape(removed_user_id)}(?:\|[^<>]*)?>"
        mrkdwn = re.sub(rf"^\s*{mention}[\s:,]*", "", mrkdwn)
        # a pattern that includes the spaces before a mention takes quadratic time on a long run of spaces
        mrkdwn = " ".join(part.strip(" \t") for part in re.split(mention, mrkdwn))
    return _TOKEN.sub(lambda match: _resolved(match, names), mrkdwn).strip()


def _resolved(match: re.Match[str], names: Mapping[str, str]) -> str:
    if match["entity"]:
        return _ENTITIES[match["entity"]]
    target, _, label = match["inside"].partition("|")
    label = unescape_entities(label)
    kind, rest = target[:1], unescape_entities(target[1:])
    if kind == "@":
        return f"@{separate_address_marks(names.get(rest) or label.lstrip('@') or rest)}"
    if kind == "#":
        return f"#{separate_address_marks(label.lstrip('#') or rest)}"
    if kind == "!":
        return label or f"@{rest.partition('^')[0]}"
    target = unescape_entities(target)
    shown = target.removeprefix("mailto:").removeprefix("tel:")
    bare = shown.removeprefix("https://").removeprefix("http://").rstrip("/")
    if not label or label.rstrip("/") in {shown, bare, target}:
        return shown
    return f"{label} {show_hidden_target(shown)}"


def unescape_entities(mrkdwn: str) -> str:
    """Unescapes the three entities that Slack uses."""
    return mrkdwn.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def escape_mrkdwn(words: str) -> str:
    """Escapes text for a mrkdwn field, including broadcast mentions such as @here."""
    return escape_entities(_BROADCAST.sub("＠", words))


def escape_entities(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def neutralize_mentions(markdown: str) -> str:
    """Replaces the characters that start a mention with look-alikes, so that it notifies no one. Keeps the length."""
    return _BROADCAST.sub("＠", _MENTION_START.sub("‹", markdown))


MRKDWN_CHARACTERS_MAX = 40_000
"""Slack truncates longer messages itself. Text is truncated here too, before any pattern scans it."""
NODES_MAX = 5_000
_LINE_TYPES = frozenset({"rich_text_section", "rich_text_preformatted", "rich_text_quote"})


def message_mrkdwn(message: JsonObject) -> str:
    """Returns the message's text, or the text of its blocks if it is empty, because an app's message for a user may
    have only blocks."""
    written = get_text(message, "text")
    if not written.strip():
        lines = block_lines(get_objects(message, "blocks"))
        written = "\n".join(line for line in lines if line.strip())
    return written[:MRKDWN_CHARACTERS_MAX]


def block_lines(blocks: Sequence[JsonObject]) -> Iterator[str]:
    """Yields the mrkdwn of each line of text in the blocks, in order."""
    pending: list[JsonValue] = list(reversed(blocks))
    for _ in range(NODES_MAX):
        if not pending:
            return
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        kind = get_text(node, "type")
        if kind in _LINE_TYPES:
            yield "".join(_element_mrkdwn(part) for part in get_objects(node, "elements"))
        elif kind in ("rich_text", "rich_text_list", "context"):
            pending += reversed(get_objects(node, "elements"))
        elif kind in ("section", "header"):
            pending += [*reversed(get_objects(node, "fields")), node.get("text")]
        elif kind in ("image", "video", "call"):
            call = get_object(get_object(node, "call"), "v1") or node
            title = get_object(node, "title") if isinstance(node.get("title"), dict) else node
            words = (
                get_text(title, "text")
                or get_text(call, "name")
                or get_text(node, "alt_text")
                or get_text(call, "title")
            )
            names = ("title_url", "video_url", "image_url", "join_url")
            address = next((url for name in names if (url := get_text(call, name))), "")
            yield escape_entities(" ".join(filter(None, (f"[{get_text(node, 'type')}]", words, address))))
        elif kind in ("plain_text", "markdown"):
            yield escape_entities(get_text(node, "text"))
        else:
            yield get_text(node, "text") if kind == "mrkdwn" else ""


def _element_mrkdwn(part: JsonObject) -> str:
    match get_text(part, "type"):
        case "text":
            text = escape_entities(get_text(part, "text"))
            return f"`{text}`" if get_object(part, "style").get("code") is True else text
        case "user":
            return f"<@{get_text(part, 'user_id')}>"
        case "usergroup":
            return f"<!subteam^{get_text(part, 'usergroup_id')}>"
        case "channel":
            return f"<#{get_text(part, 'channel_id')}>"
        case "broadcast":
            return f"<!{get_text(part, 'range')}>"
        case "emoji":
            return f":{get_text(part, 'name')}:"
        case "link":
            url, label = (escape_entities(get_text(part, "url")), escape_entities(get_text(part, "text")))
            return f"<{url}|{label}>" if label else f"<{url}>"
        case "date":
            return escape_entities(get_text(part, "fallback"))
        case _:
            return ""
