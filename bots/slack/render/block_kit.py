"""Builders for Block Kit blocks and elements, each truncated to its limit, and simpler blocks as a fallback; pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from bots.slack import limits
from bots.slack.events.payload import get_objects, get_text
from bots.slack.render.mrkdwn import escape_mrkdwn, neutralize_mentions
from core.domain.messages import JsonObject

TaskStatus = Literal["pending", "in_progress", "complete", "error"]


def truncate(words: str, limit: int) -> str:
    """Returns the text, truncated to the limit with an ellipsis."""
    return words if len(words) <= limit else words[: limit - 1] + "…"


def escape_and_truncate(words: str, limit: int) -> str:
    """Returns the text escaped for mrkdwn, truncated without cutting an entity."""
    escaped = escape_mrkdwn(words)
    if len(escaped) <= limit:
        return escaped
    kept = escaped[: limit - 1]
    last = kept.rfind("&")
    if last >= 0 and ";" not in kept[last:]:
        kept = kept[:last]
    return kept + "…"


def section_block(mrkdwn: str) -> JsonObject:
    """Builds a section. Expects escaped mrkdwn that is within the limit."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": mrkdwn, "verbatim": True}}


def context_block(mrkdwn: str) -> JsonObject:
    """Builds a context block, a line of small grey text. Expects escaped mrkdwn."""
    element: JsonObject = {"type": "mrkdwn", "text": mrkdwn, "verbatim": True}
    return {"type": "context", "elements": [element]}


def markdown_block(words: str) -> JsonObject:
    """Builds a block with a model's standard Markdown. Mentions in it notify no one."""
    shown = truncate(neutralize_mentions(words), limits.MARKDOWN_TEXT_MAX)
    return {"type": "markdown", "text": shown if shown.strip() else "…"}


def plan_block(title: str, tasks: Sequence[JsonObject]) -> JsonObject:
    return {
        "type": "plan",
        "title": truncate(neutralize_mentions(title), limits.PLAN_TITLE_MAX),
        "tasks": list(tasks),
    }


def task_card(
    task_id: str,
    title: str,
    status: TaskStatus,
    detail: str = "",
) -> JsonObject:
    card: JsonObject = {
        "type": "task_card",
        "task_id": task_id,
        "title": truncate(neutralize_mentions(title.strip()) or "…", limits.TASK_TITLE_MAX),
        "status": status,
    }
    if detail.strip():
        card["details"] = _rich_text(
            truncate(neutralize_mentions(detail.strip()), limits.TASK_DETAIL_MAX)
        )
    return card


def _rich_text(words: str) -> JsonObject:
    line: JsonObject = {"type": "rich_text_section", "elements": [{"type": "text", "text": words}]}
    return {"type": "rich_text", "elements": [line]}


def actions_block(elements: Sequence[JsonObject]) -> JsonObject:
    return {"type": "actions", "elements": list(elements)}


def button_element(
    label: str, *, action_id: str, value: str, style: Literal["primary", "danger"] | None = None
) -> JsonObject:
    pressed: JsonObject = {
        "type": "button",
        "text": plain_text_object(label, limits.BUTTON_TEXT_MAX),
        "action_id": action_id,
        "value": value[: limits.BUTTON_VALUE_MAX],
    }
    if style:
        pressed["style"] = style
    return pressed


def plain_text_object(words: str, limit: int) -> JsonObject:
    return {
        "type": "plain_text",
        "text": truncate(neutralize_mentions(words.strip()) or "…", limit),
        "emoji": True,
    }


def select_element(placeholder: str, options: Sequence[str], *, action_id: str) -> JsonObject:
    """Builds a menu whose values are the option texts. Expects each text within OPTION_TEXT_MAX."""
    return {
        "type": "static_select",
        "action_id": action_id,
        "placeholder": plain_text_object(placeholder, limits.PLACEHOLDER_MAX),
        "options": [
            {"text": plain_text_object(option, limits.OPTION_TEXT_MAX), "value": option}
            for option in options
        ],
    }


SECTIONS_MAX = 40
_BOLD = re.compile(r"\*\*(\S(?:[^*\n]*\S)?)\*\*")
_HEADING = re.compile(r"^#{1,6}[ \t]+([^\n*]+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]\n|]+)\]\((https?://[^\s()|]+)\)")
_SIGNS = {"complete": "☑", "error": "☒", "in_progress": "▸"}


def simplify_blocks(blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """Replaces `markdown` and `plan` blocks, which not every workspace accepts, with sections."""
    found = [plain for block in blocks for plain in _simplify_block(block)]
    return found[: limits.BLOCKS_MAX]


def blocks_to_mrkdwn(blocks: Sequence[JsonObject]) -> str:
    """Returns the text of simplified blocks as mrkdwn."""
    said = (
        get_text(part, "text")
        for block in blocks
        for part in (block.get("text"), *get_objects(block, "elements"))
        if isinstance(part, dict) and get_text(part, "type") in ("mrkdwn", "plain_text")
    )
    return "\n".join(said)


def _simplify_block(block: JsonObject) -> Iterator[JsonObject]:
    match get_text(block, "type"):
        case "markdown":
            yield from (
                section_block(piece)
                for piece in _split_sections(_markdown_to_mrkdwn(get_text(block, "text")))
            )
        case "plan":
            lines = [f"*{escape_mrkdwn(get_text(block, 'title'))}*"]
            lines += [_task_line(task) for task in get_objects(block, "tasks")]
            yield section_block(next(_split_sections("\n".join(lines))))
        case _:
            yield block


def _task_line(card: JsonObject) -> str:
    return f"{_SIGNS.get(get_text(card, 'status'), '☐')} {escape_mrkdwn(get_text(card, 'title'))}"


def _markdown_to_mrkdwn(markdown: str) -> str:
    """Converts headings, bold text and links, and leaves the rest as written."""
    shown = _HEADING.sub(r"*\1*", escape_mrkdwn(markdown))
    return _LINK.sub(r"<\2|\1>", _BOLD.sub(r"*\1*", shown))


def _split_sections(mrkdwn: str) -> Iterator[str]:
    """Splits the text for sections, between lines or words and never inside an entity."""
    rest, count = mrkdwn.strip() or "…", 0
    while len(rest) > limits.SECTION_TEXT_MAX and (count := count + 1) < SECTIONS_MAX:
        window = rest[: limits.SECTION_TEXT_MAX]
        at = (
            max(window.rfind("\n"), 0)
            or max(window.rfind(" "), 0)
            or _length_without_cut_entity(window)
        )
        yield rest[:at]
        rest = rest[at:].lstrip() or "…"
    yield truncate(rest, limits.SECTION_TEXT_MAX)


def _length_without_cut_entity(window: str) -> int:
    """Returns the length of the window without an incomplete entity at its end."""
    last = window.rfind("&")
    return last if last > 0 and ";" not in window[last:] else len(window)
