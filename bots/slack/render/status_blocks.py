"""The status message of a run: state, what goes on, checklist, steps, preview and buttons; pure."""

from collections.abc import Iterator

from bots.delivery.run_view import RunView, TaskState, ViewState
from bots.slack import limits
from bots.slack.events.clicks import RUN_PREFIX
from bots.slack.render.elements import (
    TaskStatus,
    actions,
    button,
    context,
    cut_escaped,
    plan,
    section,
    task_card,
)
from core.domain.messages import JsonObject

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
    """The state in one line, unescaped: the fallback text."""
    _, state = _HEADLINES[view.state]
    return f"{state}: {view.activity or view.message}" if view.activity or view.message else state


def status_blocks(run_id: str, view: RunView) -> list[JsonObject]:
    """The blocks of the status message; `run_id` is the value of its buttons."""
    blocks = [section(_headline(view))]
    if view.checklist:
        blocks.append(section(_checklist(view)))
    if view.tasks:
        blocks.append(_steps(view))
    if view.preview.strip():
        blocks.append(context(cut_escaped(view.preview.strip(), _PREVIEW_MAX)))
    if view.message.strip():
        blocks.append(section(cut_escaped(view.message.strip(), _MESSAGE_MAX)))
    if buttons := list(_buttons(run_id, view)):
        blocks.append(actions(buttons))
    return blocks


def _headline(view: RunView) -> str:
    sign, state = _HEADLINES[view.state]
    activity = " ".join(view.activity.split())
    line = f"{sign} *{state}*"
    return f"{line} · {cut_escaped(activity, _ACTIVITY_MAX)}" if activity else line


def _checklist(view: RunView) -> str:
    lines: list[str] = []
    room = _CHECKLIST_MAX
    if title := " ".join(view.checklist_title.split()):
        lines.append(f"*{cut_escaped(title, _CHECKLIST_ITEM_MAX)}*")
    for at, item in enumerate(view.checklist):
        words = cut_escaped(" ".join(item.text.split()), _CHECKLIST_ITEM_MAX)
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
    return plan(title, cards)


def _buttons(run_id: str, view: RunView) -> Iterator[JsonObject]:
    if view.can_stop:
        yield button("Stop", action_id=f"{RUN_PREFIX}stop", value=run_id, style="danger")
    if view.can_retry:
        yield button("Retry", action_id=f"{RUN_PREFIX}retry", value=run_id, style="primary")
    if view.can_continue:
        yield button("Continue", action_id=f"{RUN_PREFIX}continue", value=run_id, style="primary")
