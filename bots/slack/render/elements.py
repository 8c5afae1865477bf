"""The Block Kit pieces that our messages are made of, each cut to its limit; pure."""

from collections.abc import Sequence
from typing import Literal

from bots.slack import limits
from bots.slack.render.mrkdwn import escape, harmless
from core.domain.messages import JsonObject

TaskStatus = Literal["pending", "in_progress", "complete", "error"]


def cut(words: str, limit: int) -> str:
    """The words, with an ellipsis in place of what is over the limit."""
    return words if len(words) <= limit else words[: limit - 1] + "…"


def cut_escaped(words: str, limit: int) -> str:
    """The words escaped for mrkdwn, within the limit; no entity is cut in two."""
    escaped = escape(words)
    if len(escaped) <= limit:
        return escaped
    kept = escaped[: limit - 1]
    last = kept.rfind("&")
    if last >= 0 and ";" not in kept[last:]:
        kept = kept[:last]
    return kept + "…"


def section(mrkdwn: str) -> JsonObject:
    """`mrkdwn` is escaped already, and within the limit."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": mrkdwn, "verbatim": True}}


def context(mrkdwn: str) -> JsonObject:
    """A small grey line; `mrkdwn` is escaped already."""
    element: JsonObject = {"type": "mrkdwn", "text": mrkdwn, "verbatim": True}
    return {"type": "context", "elements": [element]}


def markdown(words: str) -> JsonObject:
    """Markdown as a model writes it; its mentions ping nobody."""
    shown = cut(harmless(words), limits.MARKDOWN_TEXT_MAX)
    return {"type": "markdown", "text": shown if shown.strip() else "…"}


def plan(title: str, tasks: Sequence[JsonObject]) -> JsonObject:
    return {
        "type": "plan",
        "title": cut(harmless(title), limits.PLAN_TITLE_MAX),
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
        "title": cut(harmless(title.strip()) or "…", limits.TASK_TITLE_MAX),
        "status": status,
    }
    if detail.strip():
        card["details"] = _rich_text(cut(harmless(detail.strip()), limits.TASK_DETAIL_MAX))
    return card


def _rich_text(words: str) -> JsonObject:
    line: JsonObject = {"type": "rich_text_section", "elements": [{"type": "text", "text": words}]}
    return {"type": "rich_text", "elements": [line]}


def actions(elements: Sequence[JsonObject]) -> JsonObject:
    return {"type": "actions", "elements": list(elements)}


def button(
    label: str, *, action_id: str, value: str, style: Literal["primary", "danger"] | None = None
) -> JsonObject:
    pressed: JsonObject = {
        "type": "button",
        "text": plain_text(label, limits.BUTTON_TEXT_MAX),
        "action_id": action_id,
        "value": value[: limits.BUTTON_VALUE_MAX],
    }
    if style:
        pressed["style"] = style
    return pressed


def plain_text(words: str, limit: int) -> JsonObject:
    return {"type": "plain_text", "text": cut(harmless(words.strip()) or "…", limit), "emoji": True}


def select(placeholder: str, options: Sequence[str], *, action_id: str) -> JsonObject:
    """A menu whose values are the options' own texts; each option is within OPTION_TEXT_MAX."""
    return {
        "type": "static_select",
        "action_id": action_id,
        "placeholder": plain_text(placeholder, limits.PLACEHOLDER_MAX),
        "options": [
            {"text": plain_text(option, limits.OPTION_TEXT_MAX), "value": option}
            for option in options
        ],
    }
