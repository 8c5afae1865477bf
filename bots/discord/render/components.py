"""Renders content as Discord messages, with a fallback for servers that refuse layouts; pure functions."""

from collections.abc import Mapping
from typing import Literal, assert_never

from bots.delivery.content import (
    CLOSED_UNANSWERED,
    FEEDBACK_LABELS,
    AnswerPart,
    AskPrompt,
    Content,
    Notice,
    RunStatus,
    answer_line,
)
from bots.delivery.markdown import split_markdown, truncate
from bots.discord.limits import (
    ANSWER_MAX,
    BUTTON_LABEL_MAX,
    BUTTONS_PER_ROW_MAX,
    CONTENT_MAX,
    PLACEHOLDER_MAX,
    SELECT_OPTION_MAX,
    SELECT_OPTIONS_MAX,
    TEXT_MAX,
    remove_unsendable,
    to_single_line,
)
from bots.discord.render.markdown import neutralize_mentions, to_discord_markdown
from bots.discord.render.status import ACCENT, status_sections
from bots.discord.rest import delivery_marker
from bots.discord.rest.client import get_objects
from core.domain.approval import APPROVE_ALL, APPROVE_ONCE, DENY, DENY_ALL
from core.domain.json import JsonObject
from core.domain.outside_text import utf16_length
from core.domain.threads import Ask

ACTION_ROW, BUTTON, SELECT, TEXT_DISPLAY, CONTAINER = 1, 2, 3, 10, 17
PRIMARY, SECONDARY, SUCCESS, DANGER = 1, 2, 3, 4
SUPPRESS_EMBEDS = 1 << 2
SUPPRESS_NOTIFICATIONS = 1 << 12
"""A flag of new messages that suppresses notifications. Users wait for the answer, not for the status."""
COMPONENTS_V2 = 1 << 15

ASK_TEXT_MAX = 2200
ANSWER_SHOWN_MAX = 600
OPTION_TEXT_MAX = 1000
ROWS_MAX = 5
"""Maximum number of rows in an ordinary message."""
MENUS_MAX = 17
"""A message has at most 40 components, and each menu counts as two, because it has a row of its own."""
OPTIONS_TEXT_MAX = TEXT_MAX - ASK_TEXT_MAX - 300
ASK_COLOUR = 0x5865F2
ANSWERED_COLOUR = 0x57F287
WRITTEN_ANSWER_TEXTS = {
    "question": ("Write an answer", "…or just reply here."),
    "approval": ("Deny with a reason", "A plain yes or no here, or 👍 on this message, counts, too."),
}
LEVEL_SIGN: dict[Literal["info", "warning", "error"], str] = {"info": "ℹ️", "warning": "⚠️", "error": "❌"}


def render_content(content: Content, *, delivery_id: str = "") -> JsonObject:
    """Returns the message body, with a delivery marker if `delivery_id` is given."""
    match content:
        case RunStatus(run_id=run_id, view=view):
            children = [text_display(text) for text in status_sections(view)]
            controls: list[JsonObject] = []
            if view.can_stop:
                controls.append(button(f"th:run:stop:{run_id}", "Stop", DANGER))
            if view.has_details:
                controls.append(button(f"th:run:details:{run_id}", "Details"))
            if view.can_retry:
                controls.append(button(f"th:run:retry:{run_id}", "Retry", PRIMARY))
            if view.can_continue:
                controls.append(button(f"th:run:continue:{run_id}", "Continue", PRIMARY))
            if controls:
                children.append(action_row(*controls))
            body = _layout_message(_container(ACCENT[view.state], children), delivery_id)
            is_silent = delivery_id and view.state not in ("failed", "limited")
            return {**body, "flags": COMPONENTS_V2 | SUPPRESS_NOTIFICATIONS} if is_silent else body
        case AskPrompt(ask=ask, commands=commands):
            return _layout_message(_question(ask, commands), delivery_id)
        case AnswerPart(markdown=markdown, run_id=run_id):
            answer = build_text_message(markdown, delivery_id)
            buttons = [button(f"th:feedback:{sign}:{run_id}", label) for sign, label in FEEDBACK_LABELS.items()]
            return {**answer, "components": [action_row(*buttons)]} if run_id else answer
        case Notice(markdown=markdown, level=level, commands=commands):
            return build_text_message(f"{LEVEL_SIGN[level]} {markdown}", delivery_id, commands)
        case _:
            assert_never(content)


def split_notice(markdown: str) -> list[str]:
    """Returns the notice in parts that fit into one message each, at least one."""
    return split_markdown(markdown, ANSWER_MAX) or [markdown]


def build_text_message(markdown: str, delivery_id: str = "", commands: Mapping[str, str] | None = None) -> JsonObject:
    """Returns an ordinary message of at most 2,000 characters, without link previews, with buttons for the commands."""
    room = CONTENT_MAX - delivery_marker.INVISIBLE_MARKER_LENGTH
    text = truncate(to_discord_markdown(markdown, length_max=room).strip(), room) or "…"
    return {
        "content": text + (delivery_marker.invisible_marker(delivery_id) if delivery_id else ""),
        "flags": SUPPRESS_EMBEDS,
        "allowed_mentions": {"parse": []},
        **({"components": [_command_row(commands)]} if commands else {}),
    }


def _layout_message(container: JsonObject, delivery_id: str) -> JsonObject:
    if delivery_id:
        container = {**container, "id": delivery_marker.marker_number(delivery_id)}
    return {"components": [container], "flags": COMPONENTS_V2, "allowed_mentions": {"parse": []}}


def text_display(text: str) -> JsonObject:
    """Builds a text display component with Markdown."""
    return {"type": TEXT_DISPLAY, "content": text}


def button(custom_id: str, label: str, style: int = SECONDARY) -> JsonObject:
    """Builds a button. The label is truncated to Discord's limit."""
    return {
        "type": BUTTON,
        "custom_id": custom_id,
        "label": to_single_line(label, BUTTON_LABEL_MAX) or "…",
        "style": style,
    }


def action_row(*items: JsonObject) -> JsonObject:
    """Builds an action row of up to five buttons, or one select."""
    return {"type": ACTION_ROW, "components": list(items)}


def _container(colour: int, children: list[JsonObject]) -> JsonObject:
    return {"type": CONTAINER, "accent_color": colour, "components": list(children)}


def _command_row(commands: Mapping[str, str]) -> JsonObject:
    return action_row(*(button(f"th:command:{command}", label) for label, command in commands.items()))


def _question(ask: Ask, commands: Mapping[str, str]) -> JsonObject:
    question = truncate(to_discord_markdown(ask.text, length_max=ASK_TEXT_MAX).strip() or "A question", ASK_TEXT_MAX)
    if ask.state != "open":
        if ask.state == "answered":
            closing = neutralize_mentions(remove_unsendable(answer_line(ask, answer_max=ANSWER_SHOWN_MAX)))
        else:
            closing = f"-# {CLOSED_UNANSWERED[ask.state]}"
        closed = [text_display(question), text_display(closing)]
        return _container(ANSWERED_COLOUR, [*closed, _command_row(commands)] if commands else closed)
    children = [text_display(f"❓ {question}")]
    options = [to_single_line(option, OPTION_TEXT_MAX) or "…" for option in ask.choices]
    left = len(options) - SELECT_OPTIONS_MAX * MENUS_MAX
    fit_buttons = len(options) <= BUTTONS_PER_ROW_MAX and all(
        utf16_length(option) <= BUTTON_LABEL_MAX for option in options
    )
    if options and fit_buttons:
        styles = {APPROVE_ONCE: SUCCESS, APPROVE_ALL: SUCCESS, DENY: DANGER, DENY_ALL: DANGER}
        is_approval = ask.kind == "approval"
        buttons = [
            button(f"th:ask:{ask.ask_id}:{at}", option, styles.get(option, SECONDARY) if is_approval else PRIMARY)
            for at, option in enumerate(options)
        ]
        children.append(action_row(*buttons))
    elif options:
        is_short = all(utf16_length(option) <= SELECT_OPTION_MAX for option in options)
        if not is_short and len(options) <= SELECT_OPTIONS_MAX:  # list the options, because a menu truncates them
            share = min(OPTION_TEXT_MAX, OPTIONS_TEXT_MAX // len(options) - 8)
            children += [
                text_display(f"**{number}.** {neutralize_mentions(truncate(option, share))}")
                for number, option in enumerate(options, 1)
            ]
        starts = range(0, len(options), SELECT_OPTIONS_MAX)[:MENUS_MAX]
        children += [action_row(_select(ask, options, start)) for start in starts]
    write, hint = WRITTEN_ANSWER_TEXTS[ask.kind]
    if left > 0:
        hint = f"{left} more options do not fit here: write yours, or just reply here."
    children.append(action_row(button(f"th:ask:{ask.ask_id}:write", write)))
    children.append(text_display(f"-# {hint}"))
    return _container(ASK_COLOUR, children)


def _select(ask: Ask, options: list[str], start: int) -> JsonObject:
    """Returns a menu with the options from index `start` on."""
    shown = options[start : start + SELECT_OPTIONS_MAX]
    which = f" ({start + 1} to {start + len(shown)})" if len(shown) < len(options) else ""
    is_numbered = max(map(utf16_length, options)) > SELECT_OPTION_MAX
    return {
        "type": SELECT,
        "custom_id": f"th:ask:{ask.ask_id}:pick{start // SELECT_OPTIONS_MAX or ''}",
        "placeholder": truncate(f"Choose an answer{which}", PLACEHOLDER_MAX),
        "options": [
            {"label": truncate(f"{at + 1}. {option}" if is_numbered else option, SELECT_OPTION_MAX), "value": str(at)}
            for at, option in enumerate(shown, start)
        ],
    }


LAYOUT_REFUSED_CODES = frozenset({"50006", "50035"})
"""Error codes for a refused layout: 50006 (empty message, from an API without layouts) and 50035 (invalid form)."""


def simplify_layout(body: JsonObject, delivery_id: str = "") -> JsonObject | None:
    """Converts a layout to an ordinary message with the same buttons. Returns None if it already is one."""
    if "content" in body:
        return None
    parts = [part for one in get_objects(body["components"]) for part in get_objects(one.get("components"))]
    texts = [str(part.get("content")) for part in parts if part.get("type") == TEXT_DISPLAY]
    ordinary = build_text_message("\n".join(texts), delivery_id)
    rows = [part for part in parts if part.get("type") == ACTION_ROW]
    flags = SUPPRESS_EMBEDS | (int(str(body["flags"])) & SUPPRESS_NOTIFICATIONS)
    kept = [*rows[: ROWS_MAX - 1], *rows[-1:]] if len(rows) > ROWS_MAX else rows
    return {**ordinary, "flags": flags, "components": list(kept)}
