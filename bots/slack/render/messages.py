"""Renders statuses, answers, questions and notices as Slack messages within Slack's limits; pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.run_view import RunView, TaskState, ViewState
from bots.slack import limits
from bots.slack.render.block_kit import (
    TaskStatus,
    actions_block,
    button_element,
    context_block,
    escape_and_truncate,
    markdown_block,
    plan_block,
    section_block,
    select_element,
    task_card,
    truncate,
)
from core.domain.approval import APPROVE_ONCE, DENY, is_allowed
from core.domain.messages import JsonObject
from core.domain.threads import Ask

ASK_PREFIX = "ask:"
RUN_PREFIX = "run:"
BUTTONS_MAX = 5
_QUESTION_MAX = 6000
_ANSWER_MAX = 1500
_LISTING_MAX = 5000
_CLOSED = {
    "withdrawn": "This question is no longer open.",
    "expired": "No one answered in time.",
}
_REPLY_HINT = "Or answer by replying in this thread."
_NO_HINT = "Any reply in this thread counts as a no, with your words as the reason."


def ask_fallback(ask: Ask) -> str:
    """Returns the question as unescaped fallback text."""
    return ask.text


def ask_blocks(ask: Ask) -> list[JsonObject]:
    """Returns blocks with the question and its controls, or with the answer once the question is closed."""
    question = markdown_block(truncate(ask.text, _QUESTION_MAX))
    if ask.state == "answered":
        who = escape_and_truncate(ask.answered_by.name if ask.answered_by else "Somebody", 100)
        answer = escape_and_truncate((ask.answer or "").strip() or "…", _ANSWER_MAX)
        is_no = ask.kind == "approval" and not is_allowed(ask)
        sign = ":x:" if is_no else ":white_check_mark:"
        return [question, section_block(f"{sign} *{who}* answered: {answer}")]
    if ask.state != "open":
        return [question, context_block(_CLOSED[ask.state])]
    options = list(dict.fromkeys(filter(None, (option.strip() for option in ask.options))))
    if not options:
        return [question, context_block("Answer by replying in this thread.")]
    if ask.kind == "approval":
        return [question, _choices(ask.ask_id, options), context_block(_NO_HINT)]
    return [question, *_controls(ask.ask_id, options), context_block(_REPLY_HINT)]


def _choices(ask_id: str, options: Sequence[str]) -> JsonObject:
    """Returns the buttons of an approval, styled as primary and danger."""
    styles: dict[str, Literal["primary", "danger"]] = {APPROVE_ONCE: "primary", DENY: "danger"}
    return actions_block(
        [
            button_element(
                option, action_id=_action_id(ask_id, at), value=option, style=styles.get(option)
            )
            for at, option in enumerate(options)
        ]
    )


def _controls(ask_id: str, options: Sequence[str]) -> Iterator[JsonObject]:
    if any(len(option) > limits.OPTION_TEXT_MAX for option in options):
        yield from _numbered(ask_id, options)
    elif len(options) <= BUTTONS_MAX:
        yield actions_block(
            [_button(ask_id, at, option, option) for at, option in enumerate(options)]
        )
    else:
        shown = options[: limits.SELECT_OPTIONS_MAX]
        yield actions_block(
            [select_element("Choose an answer", shown, action_id=_action_id(ask_id))]
        )
        if len(options) > len(shown):
            yield context_block(
                f"{len(options) - len(shown)} more options do not fit: reply with yours."
            )


def _numbered(ask_id: str, options: Sequence[str]) -> Iterator[JsonObject]:
    """Yields blocks that list options too long for a button label, with numbered buttons, as far as they fit."""
    lines: list[str] = []
    room = _LISTING_MAX
    for number, option in enumerate(options[: limits.ACTIONS_ELEMENTS_MAX], 1):
        line = f"*{number}.* {escape_and_truncate(option, limits.SECTION_TEXT_MAX - 20)}"
        room -= len(line)
        if room < 0 and lines:
            break
        lines.append(line)
    yield from (section_block(line) for line in lines)
    yield actions_block(
        [
            _button(ask_id, at, str(at + 1), option)
            for at, option in enumerate(options[: len(lines)])
        ]
    )
    if len(options) > len(lines):
        yield context_block(
            f"{len(options) - len(lines)} more options do not fit: reply with yours."
        )


def _button(ask_id: str, at: int, label: str, option: str) -> JsonObject:
    return button_element(label, action_id=_action_id(ask_id, at), value=option)


def _action_id(ask_id: str, at: int | None = None) -> str:
    """Returns an action id that is unique within the message, as Slack requires."""
    return f"{ASK_PREFIX}{ask_id}" if at is None else f"{ASK_PREFIX}{ask_id}:{at}"


_HEADLINES: dict[ViewState, tuple[str, str]] = {
    "queued": (":hourglass_flowing_sand:", "Queued"),
    "working": (":gear:", "Working"),
    "waiting": (":question:", "Waiting for approval"),
    "completed": (":white_check_mark:", "Done"),
    "asking": (":question:", "Asked a question"),
    "stopped": (":octagonal_sign:", "Stopped"),
    "failed": (":x:", "Failed"),
    "limited": (":warning:", "Stopped at a limit"),
}
_TASK_STATES: dict[TaskState, TaskStatus] = {
    "running": "in_progress",
    "done": "complete",
    "failed": "error",
}
_CHECKLIST_SIGNS = {"pending": "☐", "active": "▸", "done": "☑", "blocked": "☒"}
_ACTIVITY_MAX = 200
_MESSAGE_MAX = 1500
_CHECKLIST_MAX = 2500
_CHECKLIST_ITEM_MAX = 200
_PREVIEW_MAX = 600


def status_headline(view: RunView) -> str:
    """Returns the run's state as unescaped fallback text."""
    _, state = _HEADLINES[view.state]
    return f"{state}: {view.activity or view.message}" if view.activity or view.message else state


def status_blocks(run_id: str, view: RunView) -> list[JsonObject]:
    """Returns the blocks of the status message. `run_id` is the value of its buttons."""
    blocks = [section_block(_headline(view))]
    if view.checklist:
        blocks.append(section_block(_checklist(view)))
    if view.tasks:
        blocks.append(_steps(view))
    if view.preview.strip():
        blocks.append(context_block(escape_and_truncate(view.preview.strip(), _PREVIEW_MAX)))
    if view.message.strip():
        blocks.append(section_block(escape_and_truncate(view.message.strip(), _MESSAGE_MAX)))
    if buttons := list(_buttons(run_id, view)):
        blocks.append(actions_block(buttons))
    return blocks


def _headline(view: RunView) -> str:
    sign, state = _HEADLINES[view.state]
    activity = " ".join(view.activity.split())
    line = f"{sign} *{state}*"
    return f"{line} · {escape_and_truncate(activity, _ACTIVITY_MAX)}" if activity else line


def _checklist(view: RunView) -> str:
    lines: list[str] = []
    room = _CHECKLIST_MAX
    if title := " ".join(view.checklist_title.split()):
        lines.append(f"*{escape_and_truncate(title, _CHECKLIST_ITEM_MAX)}*")
    for at, item in enumerate(view.checklist):
        words = escape_and_truncate(" ".join(item.text.split()), _CHECKLIST_ITEM_MAX)
        line = f"{_CHECKLIST_SIGNS[item.state]} {words}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"… and {len(view.checklist) - at} more")
            break
        lines.append(line)
    return "\n".join(lines)


def _steps(view: RunView) -> JsonObject:
    shown = view.tasks[-limits.TASKS_MAX :]
    hidden = view.tasks_dropped + len(view.tasks) - len(shown)
    title = f"Steps ({hidden} earlier ones are not shown)" if hidden else "Steps"
    cards = [
        task_card(f"step-{number}", task.title, _TASK_STATES[task.state], task.detail)
        for number, task in enumerate(shown, hidden + 1)
    ]
    return plan_block(title, cards)


def _buttons(run_id: str, view: RunView) -> Iterator[JsonObject]:
    if view.can_stop:
        yield button_element("Stop", action_id=f"{RUN_PREFIX}stop", value=run_id, style="danger")
    if view.can_retry:
        yield button_element("Retry", action_id=f"{RUN_PREFIX}retry", value=run_id, style="primary")
    if view.can_continue:
        yield button_element(
            "Continue", action_id=f"{RUN_PREFIX}continue", value=run_id, style="primary"
        )


_LEVEL_SIGNS = {"info": "", "warning": ":warning: ", "error": ":x: "}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedMessage:
    """The fields of a Slack message. Notifications and old clients show only `text`."""

    text: str
    blocks: tuple[JsonObject, ...]


def render_content(content: Content) -> RenderedMessage:
    """Renders the content. Mentions in it notify no one."""
    match content:
        case RunStatus(run_id=run_id, view=view):
            blocks = status_blocks(run_id, view)
            words = status_headline(view)
        case AnswerPart():
            blocks = list(_answer_blocks(content))
            words = content.markdown
        case AskPrompt(ask=ask):
            blocks = ask_blocks(ask)
            words = ask_fallback(ask)
        case Notice(markdown=words, level=level):
            blocks = [markdown_block(_LEVEL_SIGNS[level] + words)]
        case _:
            assert_never(content)
    fallback = escape_and_truncate(words.strip(), limits.FALLBACK_TEXT_MAX) or "…"
    return RenderedMessage(text=fallback, blocks=tuple(blocks))


def _answer_blocks(part: AnswerPart) -> Iterator[JsonObject]:
    yield markdown_block(part.markdown)
    if part.parts > 1:
        yield context_block(f"Part {part.part} of {part.parts}")
