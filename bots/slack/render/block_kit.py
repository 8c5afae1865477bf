"""Builders for Block Kit blocks and elements, each truncated to its limit, and simpler blocks as a fallback; pure
functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from bots.delivery.content import FEEDBACK_LABELS
from bots.delivery.markdown import markdown_to_words, split_table_row, truncate
from bots.slack import limits
from bots.slack.events.payload_fields import get_object, get_objects, get_text
from bots.slack.render.mrkdwn import block_lines, escape_mrkdwn, neutralize_mentions
from bots.slack.render.rich_text import find_code_blocks, inline_rich_text, markdown_to_rich_text
from core.domain.json import JsonObject

MARKDOWN_BLOCKS_MAX = 40
"""Our own limit, which leaves room for other blocks in the message."""
TABLE_PAGE_ROWS = 20
"""Our own limit. Further rows are on the next page."""
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,6})?")
TaskStatus = Literal["pending", "in_progress", "complete", "error"]


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


def header_block(words: str) -> JsonObject:
    return {"type": "header", "text": plain_text_object(words, limits.HEADER_TEXT_MAX)}


def divider_block() -> JsonObject:
    return {"type": "divider"}


def context_block(mrkdwn: str) -> JsonObject:
    """Builds a context block, a line of small grey text. Expects escaped mrkdwn."""
    element: JsonObject = {"type": "mrkdwn", "text": mrkdwn, "verbatim": True}
    return {"type": "context", "elements": [element]}


def markdown_block(words: str) -> JsonObject:
    """Builds a block with standard Markdown. Mentions in it notify no one."""
    shown = truncate(neutralize_mentions(words), limits.MARKDOWN_TEXT_MAX)
    return {"type": "markdown", "text": shown if shown.strip() else "…"}


def blocks_from_markdown(markdown: str) -> list[JsonObject]:
    """Builds blocks from a model's standard Markdown. Mentions notify no one, and code is not altered.

    Code that contains something like a mention becomes rich text, because a `markdown` block might notify people."""
    if neutralize_mentions(markdown) == markdown:
        return [markdown_block(markdown)]
    lines = markdown.replace("\r\n", "\n").split("\n")
    blocks: list[JsonObject] = []
    done = 0
    for start, end in find_code_blocks("\n".join(lines), lambda code: neutralize_mentions(code) != code):
        blocks += _prose(lines[done:start])
        blocks.append(markdown_to_rich_text("\n".join(lines[start:end])))
        done = end
    blocks += _prose(lines[done:])
    return blocks if 0 < len(blocks) <= MARKDOWN_BLOCKS_MAX else [markdown_to_rich_text(markdown)]


def data_table_block(lines: Sequence[str]) -> JsonObject | None:
    """Builds a table that users can sort and page through, from the lines of a Markdown table.

    Cells keep their links and styles. Returns None if the table is larger than Slack accepts, or has no rows."""
    header, _, *rows = (split_table_row(line) for line in lines)
    width = len(header)
    if not 0 < len(rows) < limits.TABLE_ROWS_MAX or width > limits.TABLE_COLUMNS_MAX:
        return None
    titles = [markdown_to_words(neutralize_mentions(cell)).strip() for cell in header]
    caption = ", ".join(filter(None, titles)) or "Table"
    return {
        "type": "data_table",
        "caption": truncate(caption, limits.TABLE_CAPTION_MAX),
        "page_size": min(len(rows), TABLE_PAGE_ROWS),
        "rows": [
            [_raw_text(title) for title in titles],
            *([_table_cell(cell) for cell in [*row, *[""] * width][:width]] for row in rows),
        ],
    }


def _table_cell(markdown: str) -> JsonObject:
    if _NUMBER.fullmatch(markdown):
        return {"type": "raw_number", "value": float(markdown), "text": markdown}
    parts = inline_rich_text(neutralize_mentions(markdown))
    if all(part.keys() == {"type", "text"} for part in parts):
        return _raw_text("".join(get_text(part, "text") for part in parts))
    line: JsonObject = {"type": "rich_text_section", "elements": list(parts)}
    return {"type": "rich_text", "elements": [line]}


def _raw_text(words: str) -> JsonObject:
    return {"type": "raw_text", "text": words or " "}


def _prose(lines: Sequence[str]) -> list[JsonObject]:
    text = "\n".join(lines).strip("\n")
    return [markdown_block(text)] if text.strip() else []


def plan_block(title: str, tasks: Sequence[JsonObject]) -> JsonObject:
    return {"type": "plan", "title": truncate(neutralize_mentions(title), limits.PLAN_TITLE_MAX), "tasks": list(tasks)}


def task_card(task_id: str, title: str, status: TaskStatus, detail: str = "") -> JsonObject:
    card: JsonObject = {
        "type": "task_card",
        "task_id": task_id,
        "title": truncate(neutralize_mentions(title.strip()) or "…", limits.TASK_TITLE_MAX),
        "status": status,
    }
    if detail.strip():
        text = truncate(neutralize_mentions(detail.strip()), limits.TASK_DETAIL_MAX)
        line: JsonObject = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
        card["details"] = {"type": "rich_text", "elements": [line]}
    return card


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
    return {"type": "plain_text", "text": truncate(neutralize_mentions(words.strip()) or "…", limit), "emoji": True}


def feedback_block(action_id: str, value: str) -> JsonObject:
    """Builds buttons for thumbs up and thumbs down, with the values `VALUE:good` and `VALUE:bad`."""
    good, bad = (
        cast(
            JsonObject,
            {
                "text": plain_text_object(label, limits.BUTTON_TEXT_MAX),
                "accessibility_label": label,
                "value": f"{value}:{sign}",
            },
        )
        for sign, label in FEEDBACK_LABELS.items()
    )
    buttons: JsonObject = {
        "type": "feedback_buttons",
        "action_id": action_id,
        "positive_button": good,
        "negative_button": bad,
    }
    return {"type": "context_actions", "elements": [buttons]}


def select_element(placeholder: str, options: Mapping[str, str], *, action_id: str, label_max: int) -> JsonObject:
    """Builds a menu of values and their labels. Labels are truncated. Values must be at most OPTION_VALUE_MAX
    characters long."""
    return {
        "type": "static_select",
        "action_id": action_id,
        "placeholder": plain_text_object(placeholder, limits.PLACEHOLDER_MAX),
        "options": [{"text": plain_text_object(label, label_max), "value": value} for value, label in options.items()],
    }


def form_view(
    title: str, label: str, field: str, *, callback_id: str, submit: str, is_optional: bool = False
) -> JsonObject:
    """Builds a modal with one field for longer text. `field` is the block id and the action id."""
    element: JsonObject = {
        "type": "plain_text_input",
        "action_id": field,
        "multiline": True,
        "max_length": limits.INPUT_TEXT_MAX,
    }
    return {
        "type": "modal",
        "callback_id": callback_id,
        "title": plain_text_object(title, limits.VIEW_TITLE_MAX),
        "submit": plain_text_object(submit, limits.VIEW_TITLE_MAX),
        "close": plain_text_object("Cancel", limits.VIEW_TITLE_MAX),
        "blocks": [
            {
                "type": "input",
                "block_id": field,
                "label": plain_text_object(label, limits.PLACEHOLDER_MAX),
                "optional": is_optional,
                "element": element,
            }
        ],
    }


_SIGNS = {"complete": "☑", "error": "☒", "in_progress": "▸"}


def simplify_blocks(blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """Replaces blocks that Slack does not accept everywhere: `markdown` becomes rich text, `plan` becomes a section,
    and feedback buttons become ordinary buttons."""
    return [_simplify_block(block) for block in blocks]


def blocks_to_mrkdwn(blocks: Sequence[JsonObject]) -> str:
    """Returns the text of simplified blocks as mrkdwn. Mentions in it notify no one."""
    return neutralize_mentions("\n".join(block_lines(blocks)))


def _simplify_block(block: JsonObject) -> JsonObject:
    match get_text(block, "type"):
        case "markdown":
            return markdown_to_rich_text(get_text(block, "text"))
        case "context_actions":
            (thumbs,) = get_objects(block, "elements")
            both = (get_object(thumbs, name) for name in ("positive_button", "negative_button"))
            return actions_block(
                [
                    button_element(
                        get_text(one, "text", "text"),
                        action_id=f"{get_text(thumbs, 'action_id')}:{number}",
                        value=get_text(one, "value"),
                    )
                    for number, one in enumerate(both)
                ]
            )
        case "plan":
            lines = [f"*{escape_mrkdwn(get_text(block, 'title'))}*"]
            for task in get_objects(block, "tasks"):
                sign = _SIGNS.get(get_text(task, "status"), "☐")
                lines.append(f"{sign} {escape_mrkdwn(get_text(task, 'title'))}")
            text = "\n".join(lines)
            if len(text) > limits.SECTION_TEXT_MAX:
                text = text[: limits.SECTION_TEXT_MAX].rpartition("\n")[0]  # whole lines only
            return section_block(text)
        case _:
            return block
