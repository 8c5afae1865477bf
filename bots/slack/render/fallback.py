"""A message in Block Kit's oldest blocks, and in words alone, for where the newer ones are not taken; pure."""

import re
from collections.abc import Iterator, Sequence

from bots.slack import limits
from bots.slack.events.payload import children, text
from bots.slack.render.elements import cut, section
from bots.slack.render.mrkdwn import escape
from core.domain.messages import JsonObject

SECTIONS_MAX = 40
_BOLD = re.compile(r"\*\*(\S(?:[^*\n]*\S)?)\*\*")
_HEADING = re.compile(r"^#{1,6}[ \t]+([^\n*]+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]\n|]+)\]\((https?://[^\s()|]+)\)")
_SIGNS = {"complete": "☑", "error": "☒", "in_progress": "▸"}


def plainer(blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """The blocks, with sections in place of `markdown` and `plan`."""
    found = [plain for block in blocks for plain in _plainer(block)]
    return found[: limits.BLOCKS_MAX]


def words(blocks: Sequence[JsonObject]) -> str:
    """What plain blocks say, as mrkdwn."""
    said = (
        text(part, "text")
        for block in blocks
        for part in (block.get("text"), *children(block, "elements"))
        if isinstance(part, dict) and text(part, "type") in ("mrkdwn", "plain_text")
    )
    return "\n".join(said)


def _plainer(block: JsonObject) -> Iterator[JsonObject]:
    match text(block, "type"):
        case "markdown":
            yield from (section(piece) for piece in _pieces(_mrkdwn(text(block, "text"))))
        case "plan":
            lines = [f"*{escape(text(block, 'title'))}*"]
            lines += [_task(task) for task in children(block, "tasks")]
            yield section(next(_pieces("\n".join(lines))))
        case _:
            yield block


def _task(card: JsonObject) -> str:
    return f"{_SIGNS.get(text(card, 'status'), '☐')} {escape(text(card, 'title'))}"


def _mrkdwn(markdown: str) -> str:
    """What mrkdwn has a sign for; the rest reads as it was written."""
    shown = _HEADING.sub(r"*\1*", escape(markdown))
    return _LINK.sub(r"<\2|\1>", _BOLD.sub(r"*\1*", shown))


def _pieces(mrkdwn: str) -> Iterator[str]:
    """The text in pieces for sections, cut between lines or words, never inside an entity."""
    rest, count = mrkdwn.strip() or "…", 0
    while len(rest) > limits.SECTION_TEXT_MAX and (count := count + 1) < SECTIONS_MAX:
        window = rest[: limits.SECTION_TEXT_MAX]
        at = max(window.rfind("\n"), 0) or max(window.rfind(" "), 0) or _whole(window)
        yield rest[:at]
        rest = rest[at:].lstrip() or "…"
    yield cut(rest, limits.SECTION_TEXT_MAX)


def _whole(window: str) -> int:
    """The length of the window without an entity that it ends in the middle of."""
    last = window.rfind("&")
    return last if last > 0 and ";" not in window[last:] else len(window)
