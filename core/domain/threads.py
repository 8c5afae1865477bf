"""Threads, runs and what comes in for them: the nouns that chat, storage and the engine share."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from core.domain.messages import JsonObject

Platform = Literal["slack", "discord", "api"]
ThreadState = Literal["idle", "running", "waiting"]
RunStatus = Literal["queued", "running", "waiting", "completed", "failed", "stopped"]
FinishReason = Literal[
    "stop",
    "tool_calls",
    "length",
    "xml_tool_limit_reached",
    "agent_terminated",
    "stopped",
    "max_iterations",
    "budget",
]
InputKind = Literal["message", "edit", "delete", "answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a conversation lives. `thread_key`: Slack `thread_ts`, a Discord thread id, "dm", or an API id."""

    platform: Platform
    workspace_id: str
    channel_id: str
    thread_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody on a platform: a stable id and the name that others see."""

    person_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingFile:
    """A file that somebody attached. `file_ref` is opaque: only the platform's own FileSource can open it."""

    file_ref: str
    name: str
    mime_type: str = "application/octet-stream"
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """Something that was said in a chat thread, whoever it was said to."""

    author: Person
    text: str
    sent_at: datetime
    message_ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxItem:
    """Something that came in for a thread and must be claimed exactly once. `agent_id`: asked for by name.

    `dedupe_key` names the thing itself (a message, an edit, a click), never one delivery of it: two deliveries of one
    message carry the same key. `message_ref` is the platform's id of the message, for reactions and look-ups.
    """

    dedupe_key: str
    address: Address
    kind: InputKind
    author: Person
    text: str = ""
    files: tuple[IncomingFile, ...] = ()
    message_ref: str = ""
    sent_at: datetime
    agent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInput:
    """An arrival that a thread has accepted and no run has taken up yet."""

    input_id: str
    thread_id: str
    kind: InputKind
    author: Person
    text: str
    files: tuple[IncomingFile, ...]
    message_ref: str
    sent_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question that the agent left in a thread. `options` may be empty: then any reply answers it.

    Kind "approval": the run itself waits and goes on with the answer; `subject` names the turn and the tools.
    """

    ask_id: str
    run_id: str
    text: str
    options: tuple[str, ...] = ()
    state: Literal["open", "answered", "withdrawn", "expired"] = "open"
    answer: str | None = None
    answered_by: Person | None = None
    kind: Literal["question", "approval"] = "question"
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of the loop. `request_ref` is the platform message that started it; it carries the reactions.

    `agent_id` is set for an agent that was asked for by name, and with its version once the run has begun.
    """

    run_id: str
    thread_id: str
    status: RunStatus
    attempt: int = 0
    requester: Person | None = None
    request_ref: str = ""
    model: str = ""
    agent_id: str | None = None
    agent_version_id: str | None = None
    stop_requested: bool = False
    finish_reason: FinishReason | None = None
    error: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One agent conversation, bound to one chat thread."""

    thread_id: str
    address: Address
    state: ThreadState
    title: str = ""
    agent_id: str | None = None
    sandbox_id: str | None = None
    created_at: datetime
    last_activity_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot:
    """What a decision about an arrival may look at, read in the transaction that carries the decision out."""

    thread: Thread
    active_run: Run | None
    last_run: Run | None
    open_ask: Ask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """Store the input. A queued or running run takes it up (steering); else a new run is made for it.

    With `ask_id` the input also answers that ask, if it is still open: the first answer wins and a later one is
    stored as an ordinary message.
    """

    ask_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Ask the active run of the thread to stop; nothing is stored as input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """Do nothing; not even the key is claimed. `notice`, if any, is a sentence for the person alone."""

    reason: str
    notice: str = ""


Decision = Accept | StopRun | Ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an arrival. `is_duplicate`: the key was claimed before, nothing was done now.

    `run_id` is the run that was made, or the active one that will take the input up or was asked to stop.
    """

    decision: Decision
    is_duplicate: bool = False
    thread_id: str | None = None
    run_id: str | None = None
    is_new_run: bool = False
    answered_ask: Ask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and cost of model calls; `input_tokens` includes the cached ones. Cost is in US dollars.

    `estimated_usd` is what of it was reckoned from a price, where the provider told none.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated_usd: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated_usd=self.estimated_usd + other.estimated_usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a finished run leaves in the thread. `attachments` are sandbox paths or URLs, as the model gave them."""

    kind: Literal["answer", "ask", "takeover"]
    text: str
    attachments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write for a thread. `fence` grows with every claim; `attempt` counts the claims of this run.

    `deaths`: so many workers in a row died over the run before this claim, with no turn of it finished and no ask of it
    answered in between. Who hands it back alive does not count.
    """

    thread_id: str
    run_id: str
    worker_id: str
    fence: int
    attempt: int
    deaths: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord:
    """A call as the journal knows it: recorded before it runs, so that a crash cannot hide that it did.

    State "awaiting": people must allow it first. `result` is the stored tool message's `tool_execution.result` once
    the call has ended.
    """

    run_id: str
    turn_id: str
    index: int
    call_id: str
    name: str
    arguments: JsonObject
    raw: str
    assistant_message_id: str
    state: Literal["awaiting", "started", "finished"] = "started"
    result: JsonObject | None = None
    metadata: JsonObject = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedThread:
    """A thread that the agent is in. `first_ref` and `last_ref`: the least and the greatest message that it took."""

    channel_id: str
    thread_key: str
    first_ref: str
    last_ref: str
