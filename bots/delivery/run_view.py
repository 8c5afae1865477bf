"""The displayed state of a run. Events update it, and each chat platform renders it as the status message."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from core.domain.events import (
    ActivityChanged,
    AgentEvent,
    ApprovalAsked,
    ChecklistChanged,
    ChecklistItem,
    CommandEnded,
    ErrorRaised,
    FinishReached,
    MessageAdded,
    ReplyLeft,
    ResponseStarted,
    RunFailed,
    RunFinished,
    Terminal,
    TextStreamed,
    ThinkingStreamed,
    ToolCallStreamed,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from core.domain.threads import Run
from core.loop.calls import ENDING_TOOLS

STEPS_KEPT = 40
PREVIEW_CHARACTERS_MAX = 300
NARRATION_CHARACTERS_MAX = 160
SEEN_ELSEWHERE = frozenset({"planning", "ask", "complete", "no_reply"})
"""Tools whose calls are not listed as steps, because the checklist or the answer shows their effect."""
TaskState = Literal["running", "started", "left", "done", "failed", "ended"]
"""`started`: a command that goes on in the background. `left`: it went on when the run ended. `ended`: the result is
unknown."""
ViewState = Literal[
    "queued", "working", "waiting", "completed", "asking", "answered", "silent", "stopped", "failed", "limited"
]
"""`answered`: the question that ended the run is closed."""
FOLDED_STATES = frozenset({"completed", "asking", "answered", "silent"})
DETAILS_CHARACTERS_MAX = 1700


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A tool call as shown in the status message.

    `detail` is what the agent wrote before the call, or the error of a failed call. `output` is the newest line that a
    running call has printed. `session` is the shell session of a command."""

    call_id: str
    title: str
    state: TaskState
    detail: str = ""
    seconds: float = 0.0
    output: str = ""
    exit_code: int | None = None
    session: str = ""

    @property
    def line(self) -> str:
        """The title in the right tense, with the duration, and the exit code unless it is 0."""
        has_run = self.state in ("done", "ended") or self.exit_code is not None or self.session
        words = [to_past_tense(self.title) if has_run else self.title]
        if self.state == "ended":
            words.append("interrupted")
        if self.state in ("started", "left"):
            place = "in the background" if self.state == "started" else "still ran at the end"
            words = [f"Started {self.title.removeprefix('Running ')}", place]
        if self.seconds >= 0.1:
            words.append(format_duration(self.seconds))
        if self.exit_code:
            words.append(f"exit code {self.exit_code}")
        return " · ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The displayed state of a run.

    `activity` describes the current action. `tasks` holds the newest STEPS_KEPT tool calls; `tasks_dropped` counts the
    older ones. The state is "waiting" while a user must approve an action. `approvals` counts the approval requests,
    and `replies` the replies that the run has left before its end. `seconds` and `cost_usd` are the totals of the run,
    which are set once it has ended."""

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
    replies: int = 0
    can_stop: bool = True
    can_retry: bool = False
    can_continue: bool = False
    seconds: float = 0.0
    cost_usd: float = 0.0

    @property
    def is_folded(self) -> bool:
        """Whether steps and checklist are only counted, because the run has done its work."""
        return self.state in FOLDED_STATES

    @property
    def has_details(self) -> bool:
        return self.is_folded and bool(self.tasks or self.checklist)

    @property
    def summary(self) -> str:
        """What a folded run did, as in "6 steps, 1 failed · 1 min 20 s · $0.04"."""
        steps = len(self.tasks) + self.tasks_dropped
        failed = sum(task.state == "failed" for task in self.tasks)
        left = sum(task.state == "left" for task in self.tasks)
        done = sum(item.state == "done" for item in self.checklist)
        parts = [f"{done} of {len(self.checklist)} tasks"] if self.checklist else []
        if steps:
            parts.append(f"{steps} step{'s' * (steps != 1)}{f', {failed} failed' * bool(failed)}")
        if left:
            parts.append(f"{left} command{'s' * (left != 1)} still running")
        if self.seconds >= 0.1:
            parts.append(format_duration(self.seconds))
        if self.cost_usd:
            parts.append(f"${self.cost_usd:.2f}" if self.cost_usd >= 0.01 else "under $0.01")
        return " · ".join(parts)


def shows_more_than_working(view: RunView) -> bool:
    """Returns whether the status message shows more than that the run is working."""
    return bool(view.tasks or view.checklist or view.message) or view.state == "waiting"


def apply_event(view: RunView, event: AgentEvent) -> RunView:  # noqa: C901 - one case for each event
    """Returns the view after the event. Pure. Accepts events in any order."""
    match event:
        case TurnStarted(number=number):
            return replace(view, state="working", turn=number, activity="Thinking", preview="")
        case ResponseStarted():
            return replace(view, state="working", preview="")
        case TextStreamed(text=text):
            preview = (view.preview + text)[-PREVIEW_CHARACTERS_MAX:]
            return replace(view, preview=preview, activity="Writing")
        case ThinkingStreamed(seconds=seconds):
            return replace(view, activity=f"Thinking, {seconds} s" if seconds else "Thinking")
        case ToolCallStreamed(name=name) if name in SEEN_ELSEWHERE:
            return view
        case ToolCallStreamed():
            return replace(view, activity="Preparing the next step")
        case ToolStarted() | ToolFinished():
            return _with_task(view, event)
        case ToolProgressed(call_id=call_id, seconds=seconds, line=line):
            tasks = [
                replace(task, seconds=float(seconds), output=line)
                if task.state == "running" and task.call_id == call_id
                else task
                for task in view.tasks
            ]
            return replace(view, tasks=tuple(tasks))
        case CommandEnded(session=session, exit_code=exit_code):
            tasks = [
                _command_ended(task, exit_code) if task.state == "started" and task.session == session else task
                for task in view.tasks
            ]
            return replace(view, tasks=tuple(tasks))
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
        case ReplyLeft():
            return replace(view, replies=view.replies + 1)
        case RunFinished() | RunFailed():
            tasks = tuple(map(_interrupted, view.tasks))
            ended = replace(view, activity="", preview="", can_stop=False, tasks=tasks)
            if isinstance(event, RunFailed):
                return replace(ended, state="failed", message=event.public_message, can_retry=event.can_retry)
            if event.status == "stopped":
                state: ViewState = "stopped"
            elif event.can_continue or event.finish_reason in ("budget", "max_iterations"):
                state = "limited"
            elif event.reply is not None and event.reply.kind == "silence":
                state = "silent"
            elif event.reply is not None and event.reply.kind != "answer":
                state = "asking"
            else:
                state = "completed"
            return replace(ended, state=state, message=event.message, can_continue=event.can_continue)
        case _:
            assert_never(event)


def _with_task(view: RunView, event: ToolStarted | ToolFinished) -> RunView:
    if event.name in SEEN_ELSEWHERE:
        return view
    if isinstance(event, ToolStarted):
        # the last paragraph of what the agent wrote before the call, as one line
        paragraph = "" if event.name in ENDING_TOOLS else view.preview.strip().rsplit("\n\n", 1)[-1]
        narration = " ".join(paragraph.split())
        if len(narration) > NARRATION_CHARACTERS_MAX:
            narration = f"{narration[:NARRATION_CHARACTERS_MAX]}…"
        task = Task(call_id=event.call_id, title=event.title, state="running", detail=narration)
        # After a crash, an interrupted call restarts with the same ID and replaces its running entry.
        # Finished entries stay, because a model may use the call ID of an earlier turn again.
        kept = [one for one in view.tasks if one.call_id != event.call_id or one.state != "running"]
        tasks, dropped = keep_newest_tasks((*kept, task), STEPS_KEPT)
        return replace(
            view, tasks=tasks, tasks_dropped=view.tasks_dropped + dropped, activity=narration or event.title, preview=""
        )
    tasks = tuple(
        _finished(task, event)
        if task.call_id == event.call_id and task.state == "running"
        else _without_session(task, event)
        for task in view.tasks
    )
    return replace(view, tasks=tasks, activity="Thinking")


def _finished(task: Task, event: ToolFinished) -> Task:
    state: TaskState = "done" if event.outcome == "completed" else "failed"
    is_command = event.name in ("execute_command", "python_execute")
    return replace(
        task,
        state="started" if event.is_running and is_command else state,
        detail=event.message if state == "failed" and event.exit_code is None else task.detail,
        output="",
        seconds=0.0 if event.is_running else event.seconds,
        exit_code=event.exit_code if is_command else None,
        session=event.session if is_command else "",
    )


def _without_session(task: Task, event: ToolFinished) -> Task:
    """Returns the task, marked as ended if it is a background command that no longer runs in the session of the
    event."""
    if task.state != "started" or task.session != event.session:
        return task
    if event.name == "execute_command":
        return replace(task, state="ended")  # a session runs one command at a time
    return task if event.is_running else _command_ended(task, event.exit_code)


def _command_ended(task: Task, exit_code: int | None) -> Task:
    state: TaskState = "ended" if exit_code is None else "failed" if exit_code else "done"
    return replace(task, state=state, exit_code=exit_code)


def keep_newest_tasks(tasks: tuple[Task, ...], count: int) -> tuple[tuple[Task, ...], int]:
    """Returns at most `count` tasks (the newest ones, and older commands in the background), and how many are left
    out."""
    if len(tasks) <= count:
        return tasks, 0
    older = [task for task in tasks[:-count] if task.state in ("started", "left")]
    older = older[max(0, len(older) - count // 2) :]
    return (*older, *tasks[len(tasks) - count + len(older) :]), len(tasks) - count


def _interrupted(task: Task) -> Task:
    if task.state == "started":
        return replace(task, state="left")
    return replace(task, state="ended", output="") if task.state == "running" else task


_TASK_SIGNS: Mapping[TaskState, str] = {"done": "✓", "failed": "✗", "left": "▹"}
_ITEM_SIGNS = {"done": "☑", "blocked": "☒"}


def format_details(view: RunView) -> str:
    """Returns the checklist and the newest steps of a run, with the errors of failed ones, as Markdown lines."""
    items = [f"{_ITEM_SIGNS.get(item.state, '☐')} {item.text}" for item in view.checklist]
    lines = [" ".join(line.split())[:NARRATION_CHARACTERS_MAX] for line in items]
    tasks: list[str] = []
    for task in view.tasks:
        error = task.detail[:NARRATION_CHARACTERS_MAX] if task.state == "failed" else ""
        sign = _TASK_SIGNS.get(task.state, "■")
        tasks.append(f"{sign} {task.line}{f': {error}' if error else ''}")
    room = DETAILS_CHARACTERS_MAX - sum(map(len, lines))
    shown: list[str] = []
    for task in reversed(tasks):
        line = " ".join(task.split())
        room -= len(line) + 3
        if room < 0:
            break
        shown.append(line)
    earlier = view.tasks_dropped + len(tasks) - len(shown)
    lines += [f"{earlier} earlier steps are not shown"] if earlier else []
    return "\n".join(f"- {line}" for line in (*lines, *reversed(shown)))


def format_duration(seconds: float) -> str:
    """Returns a duration as users read it: "0.2 s", "25 s", "1 min 20 s"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


_PAST_WORDS = {
    "Accepting": "Accepted",
    "Answering": "Answered",
    "Asking": "Asked",
    "Changing": "Changed",
    "Clicking": "Clicked",
    "Closing": "Closed",
    "Creating": "Created",
    "Deleting": "Deleted",
    "Deploying": "Deployed",
    "Dismissing": "Dismissed",
    "Downloading": "Downloaded",
    "Dragging": "Dragged",
    "Drawing": "Drew",
    "Editing": "Edited",
    "Fetching": "Fetched",
    "Going": "Went",
    "Listing": "Listed",
    "Looking": "Looked",
    "Making": "Made",
    "Opening": "Opened",
    "Pressing": "Pressed",
    "Reading": "Read",
    "Running": "Ran",
    "Scheduling": "Scheduled",
    "Scrolling": "Scrolled",
    "Searching": "Searched",
    "Selecting": "Selected",
    "Stopping": "Stopped",
    "Switching": "Switched",
    "Taking": "Took",
    "Typing": "Typed",
    "Undoing": "Undid",
    "Uploading": "Uploaded",
    "Using": "Used",
    "Waiting": "Waited",
    "Writing": "Wrote",
}


def to_past_tense(title: str) -> str:
    """Returns a title such as "Running `ls`" as "Ran `ls`". Titles that begin with another word stay."""
    first, space, rest = title.partition(" ")
    return f"{_PAST_WORDS.get(first, first)}{space}{rest}"


def stored_terminal_event(run: Run) -> Terminal | None:
    """Returns the event that ended the run, without its message, or None if the run has not ended."""
    if run.status == "failed":
        return RunFailed(public_message=run.error or "")
    if run.status not in ("completed", "stopped"):
        return None
    return RunFinished(status=run.status, finish_reason=run.finish_reason or "stop")
