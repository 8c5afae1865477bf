"""Events of a run: a closed union of frozen dataclasses, and the envelope that orders them.

Exactly one terminal event (`RunFinished` or `RunFailed`) ends a run's stream. Ephemeral events (chunks) are published
but not stored; all other events are both. Consumers use `match` and end with `assert_never`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Discriminator, TypeAdapter

from core.domain.messages import Message
from core.domain.threads import FinishReason, Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    turn_id: str
    number: int
    kind: Literal["turn_started"] = "turn_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStarted:
    kind: Literal["response_started"] = "response_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStreamed:
    """A chunk of the response text. Ephemeral. `sequence` counts the chunks of one turn from 0."""

    text: str
    sequence: int
    kind: Literal["text_streamed"] = "text_streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStreamed:
    """The model has been thinking for `seconds`. Ephemeral. `text` is a chunk of its reasoning, or empty if the
    settings hide it."""

    text: str
    sequence: int
    seconds: int = 0
    kind: Literal["thinking_streamed"] = "thinking_streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStreamed:
    """The partial arguments of a native tool call. Ephemeral. `arguments` holds everything received so far that could
    be read."""

    index: int
    call_id: str
    name: str
    arguments: str
    sequence: int
    kind: Literal["tool_call_streamed"] = "tool_call_streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call has started. `title` is written for users ("Reading report.pdf") and built from validated
    arguments."""

    index: int
    call_id: str
    name: str
    title: str
    kind: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressed:
    """A tool call has been running for `seconds`. Ephemeral. `line` is the last line that it has printed, if any. Tools
    report only the line, and the loop adds the other fields."""

    call_id: str = ""
    seconds: int = 0
    line: str = ""
    sequence: int = 0
    kind: Literal["tool_progressed"] = "tool_progressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call has ended. Outcome "failed": the tool ran and reported a failure. "error": it could not run, or it
    crashed. `session` is the shell session that the call used. If `is_running` is true, its command continues in the
    background."""

    index: int
    call_id: str
    name: str
    outcome: Literal["completed", "failed", "error"]
    message: str
    tool_message_id: str | None = None
    terminates: bool = False
    seconds: float = 0.0
    exit_code: int | None = None
    session: str = ""
    is_running: bool = False
    kind: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded:
    """The background command of a shell session has ended. It has no exit code if the session is gone."""

    session: str
    exit_code: int | None
    kind: Literal["command_ended"] = "command_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded:
    """A complete message was added to the thread: the assistant's, a tool's, or a person's that the run consumed."""

    message: Message
    kind: Literal["message_added"] = "message_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishReached:
    reason: FinishReason
    kind: Literal["finish_reached"] = "finish_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised:
    """An error in plain words for users. The terminal event follows if the error ends the run."""

    message: str
    kind: Literal["error_raised"] = "error_raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    text: str
    state: Literal["pending", "active", "done", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistChanged:
    """The complete current checklist, from todo.md or a plan."""

    title: str
    items: tuple[ChecklistItem, ...]
    kind: Literal["checklist_changed"] = "checklist_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityChanged:
    """The run's current activity outside any tool, written for users, for example "Starting a sandbox"."""

    text: str
    kind: Literal["activity_changed"] = "activity_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """The run waits until a person approves or denies the calls described in `text`. `summary` describes them in one
    line."""

    text: str
    summary: str = ""
    kind: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLeft:
    """The run has left a reply in the thread and continues, because users wrote while it was about to end."""

    kind: Literal["reply_left"] = "reply_left"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """A turn has ended. `is_mended` means that the turn began in an interrupted attempt, and this attempt ended or
    completed it."""

    turn_id: str
    is_mended: bool = False
    kind: Literal["turn_finished"] = "turn_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """Terminal event of a completed or stopped run. If `can_continue` is true, a limit ended the run and users are
    offered a Continue button."""

    status: Literal["completed", "stopped"]
    finish_reason: FinishReason
    message: str = ""
    reply: Reply | None = None
    can_continue: bool = False
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """Terminal event of a failed run. `public_message` is one plain sentence. If `can_retry` is true, users are offered
    a Retry button."""

    public_message: str
    can_retry: bool = True
    kind: Literal["run_failed"] = "run_failed"


AgentEvent = Annotated[
    TurnStarted
    | ResponseStarted
    | TextStreamed
    | ThinkingStreamed
    | ToolCallStreamed
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | CommandEnded
    | MessageAdded
    | FinishReached
    | ErrorRaised
    | ChecklistChanged
    | ActivityChanged
    | ApprovalAsked
    | ReplyLeft
    | TurnFinished
    | RunFinished
    | RunFailed,
    Discriminator("kind"),
]
AGENT_EVENT: TypeAdapter[AgentEvent] = TypeAdapter(AgentEvent)

Chunk = TextStreamed | ThinkingStreamed | ToolCallStreamed | ToolProgressed
Terminal = RunFinished | RunFailed


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A position in a run's stream, written "2-17" in the HTTP stream. `n` starts at 1 in every attempt."""

    attempt: int
    n: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.n}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Parses the output of `str`. Raises ValueError if the text is malformed."""
        attempt, _, n = text.partition("-")
        return cls(int(attempt), int(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """An event with its position in the run's stream. `message_id` is None for chunks; for `MessageAdded` it is the
    message's id."""

    run_id: str
    thread_id: str
    cursor: Cursor
    event: AgentEvent
    turn_id: str | None = None
    message_id: str | None = None
    agent_id: str | None = None
    agent_version_id: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))


RUN_EVENT: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)


def is_chunk(event: AgentEvent) -> bool:
    """Returns whether the event is ephemeral."""
    return isinstance(event, Chunk)


def is_terminal(event: AgentEvent) -> bool:
    """Returns whether the event is the last of its run."""
    return isinstance(event, RunFinished | RunFailed)


def closing_events(terminal: Terminal, open_turn_id: str | None) -> tuple[AgentEvent, ...]:
    """Returns the events that precede the terminal event: the error or the limit that ended the run, and the end of
    an open turn."""
    said: list[AgentEvent] = []
    if isinstance(terminal, RunFailed):
        said.append(ErrorRaised(message=terminal.public_message))
    elif terminal.finish_reason in ("max_iterations", "budget"):
        said.append(FinishReached(reason=terminal.finish_reason))
    if open_turn_id is not None:
        said.append(TurnFinished(turn_id=open_turn_id))
    return tuple(said)
