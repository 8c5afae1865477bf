"""What happens in a run: a closed union of frozen facts, and the envelope that orders them.

Exactly one terminal event (`RunFinished` or `RunFailed`) ends a run's stream. Ephemeral events (chunks) are published
and not stored; all others are both. Consumers `match` and end in `assert_never`.
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
    """Ephemeral. `sequence` counts the chunks of one turn from 0."""

    text: str
    sequence: int
    kind: Literal["text_streamed"] = "text_streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingStreamed:
    """Ephemeral: a reasoning model thinks aloud. Shown as status, never stored."""

    text: str
    sequence: int
    kind: Literal["thinking_streamed"] = "thinking_streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStreamed:
    """Ephemeral: part of a native call. `arguments` is what has come in so far, as far as it can be read."""

    index: int
    call_id: str
    name: str
    arguments: str
    sequence: int
    kind: Literal["tool_call_streamed"] = "tool_call_streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """`title` is for people ("Reading report.pdf"); it comes from validated arguments."""

    index: int
    call_id: str
    name: str
    title: str
    kind: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """`failed`: the tool ran and reported failure. `error`: it could not run or broke."""

    index: int
    call_id: str
    name: str
    outcome: Literal["completed", "failed", "error"]
    message: str
    tool_message_id: str | None = None
    terminates: bool = False
    kind: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded:
    """A whole message joined the thread: the assistant's, a tool's, or a person's that was taken up."""

    message: Message
    kind: Literal["message_added"] = "message_added"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishReached:
    reason: FinishReason
    kind: Literal["finish_reached"] = "finish_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised:
    """Told to people in plain words; the terminal event follows if it ends the run."""

    message: str
    kind: Literal["error_raised"] = "error_raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    text: str
    state: Literal["pending", "active", "done", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistChanged:
    """The whole checklist as it now is (todo.md or a plan)."""

    title: str
    items: tuple[ChecklistItem, ...]
    kind: Literal["checklist_changed"] = "checklist_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityChanged:
    """What the run is busy with outside any tool, for people: "Starting a sandbox"."""

    text: str
    kind: Literal["activity_changed"] = "activity_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """The run waits until somebody allows or denies what stands in `text`; `summary` is that in one line."""

    text: str
    summary: str = ""
    kind: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """`is_mended`: an attempt that was cut off had begun it; this one only ends it, or makes it whole."""

    turn_id: str
    is_mended: bool = False
    kind: Literal["turn_finished"] = "turn_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """Terminal. `can_continue`: a limit ended the run, and a Continue button makes sense."""

    status: Literal["completed", "stopped"]
    finish_reason: FinishReason
    message: str = ""
    reply: Reply | None = None
    can_continue: bool = False
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed:
    """Terminal. `public_message` is one plain sentence; a Retry button is offered when `can_retry`."""

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
    | ToolFinished
    | MessageAdded
    | FinishReached
    | ErrorRaised
    | ChecklistChanged
    | ActivityChanged
    | ApprovalAsked
    | TurnFinished
    | RunFinished
    | RunFailed,
    Discriminator("kind"),
]
AGENT_EVENT: TypeAdapter[AgentEvent] = TypeAdapter(AgentEvent)

Chunk = TextStreamed | ThinkingStreamed | ToolCallStreamed
Terminal = RunFinished | RunFailed


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place in a run's stream; a new attempt starts over at n = 1. Written "2-17" on the wire."""

    attempt: int
    n: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.n}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """The inverse of `str`. Raises ValueError for anything else."""
        attempt, _, n = text.partition("-")
        return cls(int(attempt), int(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One event in its place. `message_id` is None for chunks; for `MessageAdded` it is the message's own."""

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
    """Whether the event is ephemeral."""
    return isinstance(event, TextStreamed | ThinkingStreamed | ToolCallStreamed)


def is_terminal(event: AgentEvent) -> bool:
    """Whether the event is the last of its run."""
    return isinstance(event, RunFinished | RunFailed)


def closing_events(terminal: Terminal, open_turn_id: str | None) -> tuple[AgentEvent, ...]:
    """What is told right before the terminal event: the error, or the limit that no turn has told; and a turn that
    had no end gets one."""
    said: list[AgentEvent] = []
    if isinstance(terminal, RunFailed):
        said.append(ErrorRaised(message=terminal.public_message))
    elif terminal.finish_reason in ("max_iterations", "budget"):
        said.append(FinishReached(reason=terminal.finish_reason))
    if open_turn_id is not None:
        said.append(TurnFinished(turn_id=open_turn_id))
    return tuple(said)
