"""A question of the agent with its buttons or menu, and what is left of it once answered; pure.

The values of the controls are the options' own texts, so that a click can be read after any restart.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from bots.slack import limits
from bots.slack.events.clicks import ASK_PREFIX
from bots.slack.render.elements import (
    actions,
    button,
    context,
    cut,
    cut_escaped,
    markdown,
    section,
    select,
)
from core.domain.approval import APPROVE_ONCE, DENY, is_allowed
from core.domain.messages import JsonObject
from core.domain.threads import Ask

BUTTONS_MAX = 5
_QUESTION_MAX = 6000
_ANSWER_MAX = 1500
_LISTING_MAX = 5000
_CLOSED = {
    "withdrawn": "This question is no longer open.",
    "expired": "Nobody answered in time.",
}
_REPLY_HINT = "Or answer by replying in this thread."
_NO_HINT = "Any reply in this thread counts as a no, with your words as the reason."


def ask_fallback(ask: Ask) -> str:
    """The question in one line, unescaped."""
    return ask.text


def ask_blocks(ask: Ask) -> list[JsonObject]:
    """The question; while it is open its controls, afterwards who answered what."""
    question = markdown(cut(ask.text, _QUESTION_MAX))
    if ask.state == "answered":
        who = cut_escaped(ask.answered_by.name if ask.answered_by else "Somebody", 100)
        answer = cut_escaped((ask.answer or "").strip() or "…", _ANSWER_MAX)
        is_no = ask.kind == "approval" and not is_allowed(ask)
        sign = ":x:" if is_no else ":white_check_mark:"
        return [question, section(f"{sign} *{who}* answered: {answer}")]
    if ask.state != "open":
        return [question, context(_CLOSED[ask.state])]
    options = list(dict.fromkeys(filter(None, (option.strip() for option in ask.options))))
    if not options:
        return [question, context("Answer by replying in this thread.")]
    if ask.kind == "approval":
        return [question, _choices(ask.ask_id, options), context(_NO_HINT)]
    return [question, *_controls(ask.ask_id, options), context(_REPLY_HINT)]


def _choices(ask_id: str, options: Sequence[str]) -> JsonObject:
    """The buttons of an approval; a yes and a no look like what they are."""
    styles: dict[str, Literal["primary", "danger"]] = {APPROVE_ONCE: "primary", DENY: "danger"}
    return actions(
        [
            button(option, action_id=_action_id(ask_id, at), value=option, style=styles.get(option))
            for at, option in enumerate(options)
        ]
    )


def _controls(ask_id: str, options: Sequence[str]) -> Iterator[JsonObject]:
    if any(len(option) > limits.OPTION_TEXT_MAX for option in options):
        yield from _numbered(ask_id, options)
    elif len(options) <= BUTTONS_MAX:
        yield actions([_button(ask_id, at, option, option) for at, option in enumerate(options)])
    else:
        shown = options[: limits.SELECT_OPTIONS_MAX]
        yield actions([select("Choose an answer", shown, action_id=_action_id(ask_id))])
        if len(options) > len(shown):
            yield context(f"{len(options) - len(shown)} more options do not fit: reply with yours.")


def _numbered(ask_id: str, options: Sequence[str]) -> Iterator[JsonObject]:
    """Options too long for a label: written out, with a button for each number, as far as there is room."""
    lines: list[str] = []
    room = _LISTING_MAX
    for number, option in enumerate(options[: limits.ACTIONS_ELEMENTS_MAX], 1):
        line = f"*{number}.* {cut_escaped(option, limits.SECTION_TEXT_MAX - 20)}"
        room -= len(line)
        if room < 0 and lines:
            break
        lines.append(line)
    yield from (section(line) for line in lines)
    yield actions(
        [
            _button(ask_id, at, str(at + 1), option)
            for at, option in enumerate(options[: len(lines)])
        ]
    )
    if len(options) > len(lines):
        yield context(f"{len(options) - len(lines)} more options do not fit: reply with yours.")


def _button(ask_id: str, at: int, label: str, option: str) -> JsonObject:
    return button(label, action_id=_action_id(ask_id, at), value=option)


def _action_id(ask_id: str, at: int | None = None) -> str:
    """Unique within the message, as Slack demands."""
    return f"{ASK_PREFIX}{ask_id}" if at is None else f"{ASK_PREFIX}{ask_id}:{at}"
