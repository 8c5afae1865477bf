"""What a person types, as the platform sends it: escapes, mentions, rich text."""

import re
from typing import Final

from simulator.slack.events.payloads import Payload
from simulator.slack.world import Workspace

_MENTION: Final = re.compile(r"(?<![\w<@])@([\w.\-]+)")
_CROWD: Final = ("here", "channel", "everyone")
_PIECE: Final = re.compile(r"<@(\w+)>|<!(here|channel|everyone)>")


def encode(workspace: Workspace, text: str) -> str:
    """The text with `@name` turned to `<@id>` and the three special characters escaped."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub(lambda found: _mention(workspace, found), escaped)


def _mention(workspace: Workspace, found: re.Match[str]) -> str:
    name = found[1]
    if name in _CROWD:
        return f"<!{name}>"
    for length in range(len(name), 0, -1):
        member = workspace.names.get(name[:length])
        if member is not None and not name[length:].strip(".-"):
            return f"<@{member.user_id}>{name[length:]}"
    return found[0]


def rich_text(workspace: Workspace, text: str) -> list[Payload]:
    """The `rich_text` block that a client sends along with a typed text."""
    parts: list[Payload] = []
    position = 0
    for found in _PIECE.finditer(text):
        _add_text(parts, text[position : found.start()])
        if found[1]:
            parts.append({"type": "user", "user_id": found[1]})
        else:
            parts.append({"type": "broadcast", "range": found[2]})
        position = found.end()
    _add_text(parts, text[position:])
    section = {"type": "rich_text_section", "elements": parts}
    return [{"type": "rich_text", "block_id": workspace.new_id("b"), "elements": [section]}]


def _add_text(parts: list[Payload], text: str) -> None:
    if text:
        plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        parts.append({"type": "text", "text": plain})
