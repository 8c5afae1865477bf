"""Renders statuses, answers, questions and notices as Slack messages within Slack's limits; pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from bots.delivery.content import CLOSED_UNANSWERED, AnswerPart, AskPrompt, Content, Notice, RunStatus, answer_line
from bots.delivery.markdown import markdown_to_words, scan_blocks, truncate
from bots.delivery.run_view import RunView, TaskState, ViewState, keep_newest_tasks
from bots.slack import limits
from bots.slack.render.block_kit import (
    TaskStatus,
    actions_block,
    blocks_from_markdown,
    button_element,
    context_block,
    data_table_block,
    escape_and_truncate,
    feedback_block,
    markdown_block,
    plan_block,
    section_block,
    select_element,
    task_card,
)
from core.domain.approval import APPROVE_ALL, APPROVE_ONCE, DENY, DENY_ALL
from core.domain.json import JsonObject
from core.domain.threads import Ask

ASK_PREFIX = "ask:"
RUN_PREFIX = "run:"
COMMAND_PREFIX = "command:"
FEEDBACK_ACTION = "feedback"
BUTTONS_MAX = 5
MENUS_MAX = 10
QUESTION_CHARACTERS_MAX = 12_600
"""Slack refuses messages of more than about 13,200 characters. The labels of menus count toward this."""
LABEL_MIN = 24
_QUESTION_MAX = 6000
_ANSWER_MAX = 1500
_LISTING_MAX = 5000
_REPLY_HINT = "Or answer by replying in this thread."
_NO_HINT = "A plain yes or no in this thread, or :+1: on this message, counts, too."


def ask_blocks(ask: Ask, commands: Mapping[str, str]) -> list[JsonObject]:
    """Returns blocks with the question and its controls. If the question is answered, returns blocks with the answer
    and buttons for the commands instead."""
    question = blocks_from_markdown(truncate(ask.text, _QUESTION_MAX))
    if ask.state == "answered":
        return [*question, markdown_block(answer_line(ask, answer_max=_ANSWER_MAX)), *command_button_blocks(commands)]
    if ask.state != "open":
        return [*question, context_block(CLOSED_UNANSWERED[ask.state])]
    options = ask.choices
    if not options:
        return [*question, context_block("Answer by replying in this thread.")]
    if ask.kind == "approval":
        styles: dict[str, Literal["primary", "danger"]] = {
            **dict.fromkeys((APPROVE_ONCE, APPROVE_ALL), "primary"),
            **dict.fromkeys((DENY, DENY_ALL), "danger"),
        }
        buttons = [
            button_element(option, action_id=_action_id(ask.ask_id, at), value=option, style=styles.get(option))
            for at, option in enumerate(options)
        ]
        return [*question, actions_block(buttons), context_block(_NO_HINT)]
    room = QUESTION_CHARACTERS_MAX - min(len(ask.text), _QUESTION_MAX)
    return [*question, *_controls(ask.ask_id, options, room), context_block(_REPLY_HINT)]


def command_button_blocks(commands: Mapping[str, str]) -> Iterator[JsonObject]:
    """Yields a block with a button for each command, if there are any. The keys of `commands` are the labels."""
    buttons = [
        button_element(label, action_id=f"{COMMAND_PREFIX}{at}", value=command)
        for at, (label, command) in enumerate(commands.items())
    ]
    if buttons:
        yield actions_block(buttons)


def _controls(ask_id: str, options: Sequence[str], room: int) -> Iterator[JsonObject]:
    """Yields buttons or menus. The labels of the menus have at most `room` characters in total."""
    longest = max(map(len, options))
    is_listed = len(options) <= limits.ACTIONS_ELEMENTS_MAX or longest > limits.OPTION_VALUE_MAX
    if longest > limits.OPTION_TEXT_MAX and is_listed:
        yield from _numbered(ask_id, options)
    elif len(options) <= BUTTONS_MAX:
        yield actions_block([_button(ask_id, at, option, option) for at, option in enumerate(options)])
    else:
        most = limits.SELECT_OPTIONS_MAX
        width = min(limits.OPTION_TEXT_MAX, longest, max(LABEL_MIN, room // len(options)))
        fitting = min(most * MENUS_MAX, room // width)
        left, options = len(options) - fitting, options[:fitting]
        starts = range(0, len(options), most)
        menus: list[JsonObject] = []
        for start in starts:
            numbered = enumerate(options[start : start + most], start + 1)
            shown = {one: f"{at}. {one}" if longest > width else one for at, one in numbered}
            which = f" ({start + 1} to {start + len(shown)})" if len(starts) > 1 else ""
            action_id = _action_id(ask_id, len(menus))
            menus.append(select_element(f"Choose an answer{which}", shown, action_id=action_id, label_max=width))
        yield actions_block(menus)
        if left > 0:
            yield context_block(f"{left} more options do not fit: reply with yours.")


def _numbered(ask_id: str, options: Sequence[str]) -> Iterator[JsonObject]:
    """Yields blocks that list options that are too long for a button label, with numbered buttons. Options that do not
    fit are counted."""
    lines: list[str] = []
    room = _LISTING_MAX
    for number, option in enumerate(options[: limits.ACTIONS_ELEMENTS_MAX], 1):
        line = f"*{number}.* {escape_and_truncate(option, limits.SECTION_TEXT_MAX - 20)}"
        room -= len(line)
        if room < 0 and lines:
            break
        lines.append(line)
    yield from (section_block(line) for line in lines)
    yield actions_block([_button(ask_id, at, str(at + 1), options[at]) for at in range(len(lines))])
    if left := len(options) - len(lines):
        yield context_block(f"{left} more options do not fit: reply with yours.")


def _button(ask_id: str, at: int, label: str, option: str) -> JsonObject:
    return button_element(label, action_id=_action_id(ask_id, at), value=option)


def _action_id(ask_id: str, at: int) -> str:
    """Returns an action id that is unique within the message, as Slack requires."""
    return f"{ASK_PREFIX}{ask_id}:{at}"


_HEADLINES: dict[ViewState, tuple[str, str]] = {
    "queued": (":hourglass_flowing_sand:", "Queued"),
    "working": (":gear:", "Working"),
    "waiting": (":question:", "Waiting for approval"),
    "completed": (":white_check_mark:", "Done"),
    "asking": (":question:", "Asked a question"),
    "answered": (":white_check_mark:", "Question answered"),
    "silent": (":white_check_mark:", "Done"),
    "stopped": (":octagonal_sign:", "Stopped"),
    "failed": (":x:", "Failed"),
    "limited": (":warning:", "Stopped at a limit"),
}
_TASK_STATES: dict[TaskState, TaskStatus] = {
    "running": "in_progress",
    "started": "in_progress",
    "left": "pending",
    "done": "complete",
    "failed": "error",
    "ended": "pending",
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
    more = view.activity or view.message or (view.summary if view.is_folded else "")
    return f"{state}: {more}" if more else state


def status_blocks(run_id: str, view: RunView) -> list[JsonObject]:
    """Returns the blocks of the status message. `run_id` is the value of its buttons."""
    sign, state = _HEADLINES[view.state]
    activity = view.summary if view.is_folded else " ".join(view.activity.split())
    line = f"{sign} *{state}*"
    blocks = [section_block(f"{line} · {escape_and_truncate(activity, _ACTIVITY_MAX)}" if activity else line)]
    if view.checklist and not view.is_folded:
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
        blocks.append(section_block("\n".join(lines)))
    if view.tasks and not view.is_folded:
        shown, hidden = keep_newest_tasks(view.tasks, limits.TASKS_MAX)
        hidden += view.tasks_dropped
        title = f"Steps ({hidden} earlier ones are not shown)" if hidden else "Steps"
        cards = [
            task_card(
                f"step-{number}", task.line.replace("`", ""), _TASK_STATES[task.state], task.output or task.detail
            )
            for number, task in enumerate(shown, hidden + 1)
        ]
        blocks.append(plan_block(title, cards))
    if view.preview.strip():
        blocks.append(context_block(escape_and_truncate(view.preview.strip(), _PREVIEW_MAX)))
    if view.message.strip():
        blocks.append(section_block(escape_and_truncate(view.message.strip(), _MESSAGE_MAX)))
    buttons: list[JsonObject] = []
    if view.can_stop:
        buttons.append(button_element("Stop", action_id=f"{RUN_PREFIX}stop", value=run_id, style="danger"))
    if view.has_details:
        buttons.append(button_element("Details", action_id=f"{RUN_PREFIX}details", value=run_id))
    if view.can_retry:
        buttons.append(button_element("Retry", action_id=f"{RUN_PREFIX}retry", value=run_id, style="primary"))
    if view.can_continue:
        buttons.append(button_element("Continue", action_id=f"{RUN_PREFIX}continue", value=run_id, style="primary"))
    if buttons:
        blocks.append(actions_block(buttons))
    return blocks


_LEVEL_SIGNS = {"info": "", "warning": ":warning: ", "error": ":x: "}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedMessage:
    """The fields of a Slack message. Notifications and old clients show only `text`.

    `plain_blocks` show the same content without blocks that Slack may not accept."""

    text: str
    blocks: tuple[JsonObject, ...]
    plain_blocks: tuple[JsonObject, ...]


def render_content(content: Content) -> RenderedMessage:
    """Renders the content as Slack's text and blocks. Mentions in it notify no one."""
    plain_blocks: list[JsonObject] | None = None
    match content:
        case RunStatus(run_id=run_id, view=view):
            blocks = status_blocks(run_id, view)
            words = status_headline(view)
        case AnswerPart(markdown=markdown, is_plain=True):
            text = escape_and_truncate(markdown, limits.PLAIN_MESSAGE_MAX)
            return RenderedMessage(text=text, blocks=(), plain_blocks=())
        case AnswerPart():
            blocks = list(_answer_blocks(content, _prose_and_table(content.markdown)))
            plain_blocks = list(_answer_blocks(content, blocks_from_markdown(content.markdown)))
            words = _notification(content.markdown)
        case AskPrompt(ask=ask, commands=commands):
            blocks = ask_blocks(ask, commands)
            words = _notification(ask.text)
        case Notice(markdown=markdown, level=level, commands=commands):
            blocks = [*blocks_from_markdown(_LEVEL_SIGNS[level] + markdown), *command_button_blocks(commands)]
            words = _notification(markdown)
        case _:
            assert_never(content)
    fallback = escape_and_truncate(words.strip(), limits.FALLBACK_TEXT_MAX) or "…"
    return RenderedMessage(text=fallback, blocks=tuple(blocks), plain_blocks=tuple(plain_blocks or blocks))


def _notification(markdown: str) -> str:
    """Returns the beginning of the text without Markdown, for push notifications and screen readers."""
    return markdown_to_words(markdown[: limits.FALLBACK_TEXT_MAX])


def _prose_and_table(markdown: str) -> list[JsonObject]:
    """Returns the blocks of an answer. If it contains one table, users can sort that table.

    If there are several tables, all of them stay Markdown, because Slack does not document how many data tables a
    message may have."""
    parts = list(scan_blocks(markdown.replace("\r\n", "\n")))
    tables = [at for at, part in enumerate(parts) if part.kind == "table"]
    table = data_table_block(parts[tables[0]].lines) if len(tables) == 1 else None
    if table is None:
        return blocks_from_markdown(markdown)
    before, after = (
        "".join(part.gap + part.text for part in some).strip("\n")
        for some in (parts[: tables[0]], parts[tables[0] + 1 :])
    )
    return [*(blocks_from_markdown(before) if before else ()), table, *(blocks_from_markdown(after) if after else ())]


def _answer_blocks(part: AnswerPart, blocks: Sequence[JsonObject]) -> Iterator[JsonObject]:
    yield from blocks
    if part.parts > 1:
        yield context_block(f"Part {part.part} of {part.parts}")
    if part.run_id:
        yield feedback_block(FEEDBACK_ACTION, part.run_id)
