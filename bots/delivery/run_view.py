"""The displayed state of a run. Events update it, and each chat platform renders it as the status message."""

from dataclasses import dataclass, replace
from typing import Literal, assert_never

from core.domain.events import (
    ActivityChanged,
    AgentEvent,
    ApprovalAsked,
    ChecklistChanged,
    ChecklistItem,
    ErrorRaised,
    FinishReached,
    MessageAdded,
    ResponseStarted,
    RunFailed,
    RunFinished,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)

STEPS_KEPT = 40
PREVIEW_CHARACTERS_MAX = 300
SEEN_ELSEWHERE = frozenset({"planning"})
"""Tools whose calls are not listed as steps, because the checklist already shows their effect."""
TaskState = Literal["running", "done", "failed"]
ViewState = Literal[
    "queued", "working", "waiting", "completed", "asking", "stopped", "failed", "limited"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A tool call as shown in the status message. `detail` is the error message of a failed call."""

    call_id: str
    title: str
    state: TaskState
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The displayed state of a run.

    `activity` describes the current action. `tasks` holds the newest STEPS_KEPT tool calls; `tasks_dropped` counts the
    older ones. The state is "waiting" while a user must approve an action. `approvals` counts the approval requests.
    """

    state: ViewState = "queued"
    activity: str = ""
    turn: int = 0
    tasks: tuple[Task, ...] = ()
    tasks_dropped: int = 0
    checklist_title: str = ""
    checklist: tuple[ChecklistItem, ...] = ()
    preview: str = ""
    message: str = ""
    approvals: int = 0
    can_stop: bool = True
    can_retry: bool = False
    can_continue: bool = False


def apply_event(view: RunView, event: AgentEvent) -> RunView:  # noqa: C901, PLR0912 - one case per event
    """Returns the view after the event. Pure. Accepts events in any order."""
    match event:
        case TurnStarted(number=number):
            return replace(view, state="working", turn=number, activity="Thinking", preview="")
        case ResponseStarted():
            return replace(view, state="working")
        case TextStreamed(text=text):
            preview = (view.preview + text)[-PREVIEW_CHARACTERS_MAX:]
            return replace(view, preview=preview, activity="Writing")
        case ThinkingStreamed():
            return replace(view, activity="Thinking")
        case ToolCallStreamed(name=name):
            return replace(view, activity=f"Preparing {name}")
        case ToolStarted() | ToolFinished():
            return _with_task(view, event)
        case MessageAdded() | FinishReached() | TurnFinished():
            return view
        case ErrorRaised(message=message):
            return replace(view, message=message)
        case ChecklistChanged(title=title, items=items):
            return replace(view, checklist_title=title, checklist=items)
        case ActivityChanged(text=text):
            return replace(view, activity=text)
        case ApprovalAsked(summary=summary):
            asked = view.approvals + 1
            return replace(view, state="waiting", activity=summary, preview="", approvals=asked)
        case RunFinished() | RunFailed():
            return _ended(view, event)
        case _:
            assert_never(event)


def _with_task(view: RunView, event: ToolStarted | ToolFinished) -> RunView:
    if event.name in SEEN_ELSEWHERE:
        return view
    if isinstance(event, ToolStarted):
        task = Task(call_id=event.call_id, title=event.title, state="running")
        # After a crash, an interrupted call restarts with the same ID and replaces its running entry.
        # Finished entries stay, because models may reuse the IDs of earlier turns.
        kept = [one for one in view.tasks if one.call_id != event.call_id or one.state != "running"]
        tasks = (*kept, task)
        dropped = max(0, len(tasks) - STEPS_KEPT)
        return replace(
            view,
            tasks=tasks[dropped:],
            tasks_dropped=view.tasks_dropped + dropped,
            activity=event.title,
            preview="",
        )
    state: TaskState = "done" if event.outcome == "completed" else "failed"
    detail = "" if state == "done" else event.message
    tasks = tuple(
        replace(task, state=state, detail=detail)
        if task.call_id == event.call_id and task.state == "running"
        else task
        for task in view.tasks
    )
    return replace(view, tasks=tasks, activity="Thinking")


def _ended(view: RunView, event: RunFinished | RunFailed) -> RunView:
    ended = replace(view, activity="", preview="", can_stop=False)
    if isinstance(event, RunFailed):
        return replace(
            ended, state="failed", message=event.public_message, can_retry=event.can_retry
        )
    if event.status == "stopped":
        state: ViewState = "stopped"
    elif event.can_continue or event.finish_reason == "budget":
        state = "limited"
    elif event.reply is not None and event.reply.kind != "answer":
        state = "asking"
    else:
        state = "completed"
    return replace(ended, state=state, message=event.message, can_continue=event.can_continue)
