"""What a message says: its text, or where it has none its blocks, written as the text would be; pure."""

from collections.abc import Iterator

from pydantic import JsonValue

from bots.slack.events.payload import children, text
from bots.slack.render.mrkdwn import entities
from core.domain.messages import JsonObject

NODES_MAX = 5_000
_LINES = frozenset({"rich_text_section", "rich_text_preformatted", "rich_text_quote"})


def mrkdwn_of(message: JsonObject) -> str:
    """Slack writes the text of what people type; what an app posts in somebody's name may have blocks alone."""
    written = text(message, "text")
    if written.strip():
        return written
    return "\n".join(line for line in _lines(children(message, "blocks")) if line.strip())


def _lines(blocks: list[JsonObject]) -> Iterator[str]:
    pending: list[JsonValue] = list(reversed(blocks))
    for _ in range(NODES_MAX):
        if not pending:
            return
        node = pending.pop()
        if not isinstance(node, dict):
            continue
        kind = text(node, "type")
        if kind in _LINES:
            yield "".join(_inline(part) for part in children(node, "elements"))
        elif kind in ("rich_text", "rich_text_list", "context"):
            pending += reversed(children(node, "elements"))
        elif kind in ("section", "header"):
            pending += [*reversed(children(node, "fields")), node.get("text")]
        else:
            yield _object(node)


def _object(node: JsonObject) -> str:
    """A text object, or the markdown block."""
    kind, words = text(node, "type"), text(node, "text")
    if kind in ("plain_text", "markdown"):
        return entities(words)
    return words if kind == "mrkdwn" else ""


def _inline(part: JsonObject) -> str:
    match text(part, "type"):
        case "text":
            return entities(text(part, "text"))
        case "user":
            return f"<@{text(part, 'user_id')}>"
        case "usergroup":
            return f"<!subteam^{text(part, 'usergroup_id')}>"
        case "channel":
            return f"<#{text(part, 'channel_id')}>"
        case "broadcast":
            return f"<!{text(part, 'range')}>"
        case "emoji":
            return f":{text(part, 'name')}:"
        case "link":
            url, label = entities(text(part, "url")), entities(text(part, "text"))
            return f"<{url}|{label}>" if label else f"<{url}>"
        case _:
            return ""
