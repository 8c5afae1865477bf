"""Data types for threads, runs and their inputs, shared by the chat platforms, the storage and the agent loop."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from core.domain.json import JsonObject
from core.domain.outside_text import safe_file_name, single_line

QUESTION_CHARACTERS_MAX = 1500
"""A question and its preface are posted as one message if they are not longer than this."""
WORDS_COMPARED_MIN = 8
SHARED_MIN = 0.85
"""Two texts count as equal if the longer one has at least that many words and they share this part of their words."""
_WORD = re.compile(r"\w+")
_NOT_OF_A_TYPE = re.compile(r"[^\w.+/;= -]")

Platform = Literal["slack", "discord", "api"]
ThreadState = Literal["idle", "running", "waiting"]
RunStatus = Literal["queued", "running", "waiting", "completed", "failed", "stopped"]
FinishReason = Literal[
    "stop", "tool_calls", "length", "xml_tool_limit_reached", "agent_terminated", "stopped", "max_iterations", "budget"
]
InputKind = Literal["message", "edit", "delete", "answer"]
FollowMode = Literal["default", "follow", "mention", "quiet"]
"""Which messages of a thread the agent reads. "default": all of a user who is alone with it, otherwise only those that
call it. "follow": everything. "mention": only messages that mention it. "quiet": nothing until a message mentions
it."""
Attention = Literal["addressed", "clear", "unsure"]
"""How certain it is that a message is meant for the agent. "addressed": it calls the agent. "clear": its author is
alone with the agent. "unsure": the agent follows what several users say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The location of a conversation. `thread_key` is a Slack `thread_ts`, a Discord thread id, "dm", or an API id.

    Whoever can read the channel `channel_id` can read the conversation. So a private thread on Discord is a channel of
    its own, with the id CHANNEL/THREAD."""

    platform: Platform
    workspace_id: str
    channel_id: str
    thread_key: str

    @property
    def is_direct(self) -> bool:
        """Whether it is a direct message, which other users cannot read."""
        if self.platform == "slack":
            return self.channel_id.startswith("D")
        return self.thread_key == "dm"

    @property
    def has_threads(self) -> bool:
        """Whether threads can begin in the channel. On Discord, a direct message and a private thread have none."""
        return self.thread_key != "dm" and "/" not in self.channel_id

    @property
    def place_for_tasks(self) -> "Address":
        """The channel, in which each new task begins a thread, or this thread if the channel has no others."""
        return replace(self, thread_key="") if self.has_threads else self

    @property
    def settings_channel_id(self) -> str:
        """The id of the channel whose settings apply: a private thread has those of the channel that it is in."""
        return self.channel_id.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects the threads or schedules of a place and a person. None selects all."""

    platform: str | None = None
    workspace_id: str | None = None
    channel_id: str | None = None
    person_id: str | None = None

    @classmethod
    def of_channel(cls, address: Address) -> "Selection":
        return cls(platform=address.platform, workspace_id=address.workspace_id, channel_id=address.channel_id)

    @classmethod
    def of_person(cls, person_id: str, address: Address) -> "Selection":
        """Returns the selection of everything that belongs to a person in the address's workspace. On Discord, a person
        is the same in all servers and in direct messages."""
        workspace_id = None if address.platform == "discord" else address.workspace_id
        return cls(platform=address.platform, workspace_id=workspace_id, person_id=person_id)

    def includes(self, address: Address, person_id: str) -> bool:
        """Whether it selects what belongs to this person at this address."""
        values = (address.platform, address.workspace_id, address.channel_id, person_id)
        wanted = (self.platform, self.workspace_id, self.channel_id, self.person_id)
        return all(one in (None, value) for one, value in zip(wanted, values, strict=True))


Position = tuple[datetime, str]
"""A place in a list that is sorted by a time, and by id where times are equal."""
APP_PREFIX = "app:"
APP_REQUESTS_MAX = 2
APP_REQUESTS_SECONDS = 600.0
"""How many requests of one app are accepted in a channel within this time, so that two agents cannot talk to each other
forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person on a chat platform: a stable id, a name that other users see, and the name of a time zone, which is
    empty if the platform does not report it. The name comes from outside, so it is made one visible line here.

    An app that may start runs is a person, too. Its id begins with `app:`, unlike the ids of any platform. The id is
    empty if the person is unknown, for example whoever opens the link of a browser take-over."""

    person_id: str
    name: str
    time_zone: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", single_line(self.name))

    @property
    def is_app(self) -> bool:
        return self.person_id.startswith(APP_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingFile:
    """A file attached to a user's message. `file_ref` is opaque: only the platform's own FileSource can open it.

    Name and type come from outside. They are made safe here, so that no note that contains them can be forged."""

    file_ref: str
    name: str
    mime_type: str = "application/octet-stream"
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", safe_file_name(self.name))
        object.__setattr__(self, "mime_type", _NOT_OF_A_TYPE.sub("", self.mime_type[:100]))

    @property
    def is_audio(self) -> bool:
        """Whether the file contains sound, as voice messages and audio clips do."""
        return self.mime_type.startswith("audio/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message in a chat thread. It need not be addressed to the agent. If `is_app` is true, an app wrote it."""

    author: Person
    text: str
    sent_at: datetime
    message_ref: str = ""
    files: tuple[IncomingFile, ...] = ()
    is_app: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPage:
    """Messages of a chat thread, oldest first: the newest ones, and also `root` if the thread begins before them.
    `omitted` counts the messages between the two, or, if `is_partial` is true, all those that the platform did not
    return."""

    messages: tuple[ChatMessage, ...] = ()
    root: ChatMessage | None = None
    omitted: int = 0
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInput:
    """An input that the thread has accepted and that no run has consumed yet. `position` is its place among the inputs
    of the thread."""

    input_id: str
    thread_id: str
    position: int = 0
    kind: InputKind
    author: Person
    text: str
    files: tuple[IncomingFile, ...]
    message_ref: str
    sent_at: datetime
    attention: Attention = "addressed"

    def is_news_for(self, request_ref: str) -> bool:
        """Returns whether a message is new for a run, which means that it is not the run's own request. The request is
        unread until the run takes it. An edit of the request is new."""
        if self.kind == "delete" or not self.message_ref:
            return False
        return self.kind == "edit" or self.message_ref != request_ref


def unique_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the texts without surrounding white space and without duplicates. Blank texts are left out."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, texts))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question that the agent asks in a thread. If `options` is empty, any reply answers it.

    If `kind` is "approval", the run itself waits for the answer, and `subject` names the turn and the tools.
    `message_ref` is the platform's id of the message with the question, or empty if it is unknown. `requester` is the
    person whose run asks, if the ask was read for a decision about an action.
    `is_written_in_thread`: the answer is a message that people see in the thread.
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
    message_ref: str = ""
    requester: Person | None = None
    is_written_in_thread: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The options as users see them, without duplicates and without blank ones."""
        return unique_texts(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of the agent loop. `request_ref` is the platform message that started the run and carries its
    reactions. `agent_id` is set if an agent was requested by name; `agent_version_id` is set when the run begins.
    `attention` says how sure it is that the request was meant for the agent. The request was sent at `requested_at`.
    After a stop, messages that were sent until `stopped_until` start no new run; later messages do. Both times are by
    the platform's clock."""

    run_id: str
    thread_id: str
    status: RunStatus
    attempt: int = 0
    requester: Person | None = None
    request_ref: str = ""
    model: str = ""
    agent_id: str | None = None
    agent_version_id: str | None = None
    attention: Attention = "addressed"
    stop_requested: bool = False
    stopped_until: datetime | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None
    requested_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation. `earlier_authors` are the names, by id, of the users who had written in the chat thread before
    the agent joined, or None if that is unknown."""

    thread_id: str
    address: Address
    state: ThreadState
    title: str = ""
    agent_id: str | None = None
    sandbox_id: str | None = None
    earlier_authors: Mapping[str, str] | None = None
    created_at: datetime
    last_activity_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedThread:
    """A thread with the id and the status of its newest run. Both are None before the first run."""

    thread: Thread
    run_id: str | None
    run_status: RunStatus | None

    @property
    def position(self) -> Position:
        return self.thread.last_activity_at, self.thread.thread_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadParticipants:
    """Who has written in a thread, except the agent. `is_known` is false if others may have written before the agent
    joined. `heard_at` is when the newest message that was not meant for the agent was sent, and `requested_at` is when
    the newest one that was meant for it was sent."""

    participants: tuple[Person, ...] = ()
    is_known: bool = True
    heard_at: datetime | None = None
    requested_at: datetime | None = None

    def is_alone(self, person: Person) -> bool:
        """Returns whether nobody except this person has written to the agent. Apps do not count."""
        ids = {one.person_id for one in self.participants if not one.is_app}
        return self.is_known and ids <= {person.person_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSnapshot:
    """The state of a thread on which a decision about an action is based. It is read in the transaction that applies
    the decision. `talk` and `follow_mode` are set only for such a decision; `follow_mode` is None if nobody has chosen
    one."""

    thread: Thread
    active_run: Run | None
    last_run: Run | None
    open_ask: Ask | None
    talk: ThreadParticipants = ThreadParticipants()
    follow_mode: FollowMode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """Decision to store the input. An active run consumes it; otherwise a new run is queued.

    With `ask_id`, the input also answers that ask if it is still open. The first answer counts, and later ones are
    stored as ordinary messages. `answer` replaces the input's text as the answer. With `is_steering`, the input answers
    nothing, and an open question stays open. With `follows_again`, the agent resumes following a thread in which it was
    silent. With `is_late`, users are asked whether they still want the request before a run begins."""

    ask_id: str | None = None
    answer: str | None = None
    is_steering: bool = False
    attention: Attention = "addressed"
    follows_again: bool = False
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhear:
    """Decision to keep a message that users wrote to each other, as context for later runs."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """Decision to stop the thread's active run, together with the messages that were sent until that time, or until now
    if it is None. The message itself is not stored as input."""

    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignore:
    """Decision to do nothing; the key is not claimed either. `notice` is an optional sentence that only the person
    sees."""

    reason: str
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Decision to do nothing now and to decide again in a moment, because the question that the message may answer is
    being posted."""


Decision = Accept | StopRun | Overhear | Ignore | Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of accepting an action. If `is_duplicate` is true, the key was claimed before and nothing was changed.
    `run_id` is the new run, or the active run that consumes the input or is asked to stop.

    `newer_version` is set if an edit arrived before its message. It is the text of the edit and the time when it was
    written. The caller must accept the message again with both."""

    decision: Decision
    is_duplicate: bool = False
    thread_id: str | None = None
    run_id: str | None = None
    is_new_run: bool = False
    answered_ask: Ask | None = None
    newer_version: tuple[str, datetime] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and cost in US dollars of model calls. `input_tokens` includes cached tokens. It also includes
    `written_tokens`, which the provider has added to its cache; they matter for the price and are not stored.
    `estimated_usd` is the part of `cost_usd` that is estimated from a price because the provider reported no cost."""

    input_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated_usd: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated_usd=self.estimated_usd + other.estimated_usd,
        )

    @property
    def budget_tokens(self) -> int:
        """The tokens that count against a limit. Input from the provider's cache costs about a tenth, so it counts as a
        tenth: each turn sends a long conversation again."""
        return self.input_tokens - self.cached_tokens * 9 // 10 + self.output_tokens


ReplyKind = Literal["answer", "ask", "takeover", "silence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply that a finished run leaves in the thread. `attachments` are sandbox paths or URLs, as the model wrote
    them. `preface` is what the model wrote next to the call that ended the run."""

    kind: ReplyKind
    text: str
    attachments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    preface: str = ""

    @property
    def whole_text(self) -> str:
        """The preface and the text. If one of them repeats the words of the other, or nearly all of them at about the
        same length, returns only one of the two."""
        preface, text = _words(self.preface), _words(self.text)
        if text in preface:
            return self.preface
        one, other = preface.split(), text.split()
        longest, shared = max(len(one), len(other)), (Counter(one) & Counter(other)).total()
        is_repeated = preface in text or (longest >= WORDS_COMPARED_MIN and shared >= SHARED_MIN * longest)
        return self.text if is_repeated else f"{self.preface}\n\n{self.text}"

    @property
    def parts(self) -> tuple[str, str]:
        """The text to post first, which may be empty, and the text to post last, so that a question is never hidden
        behind a long preface."""
        whole = self.whole_text
        if self.kind == "answer" or len(whole) <= QUESTION_CHARACTERS_MAX or not self.preface:
            return "", whole
        return self.preface, self.text


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} " if text.strip() else ""


STILL_WANTED = Reply(kind="ask", text="I was away. Still wanted?", options=("Yes, go ahead", "No"))
"""The question that is asked instead of starting work on a request that is late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write to a thread. `fence` is a fencing token that grows with every claim. `attempt` counts the
    claims of this run, and how often `forget me` made another claim necessary. `deaths` counts the workers in a row
    that died during the run before this claim. A finished turn or an answered ask resets the count. A worker that
    releases the run alive does not count."""

    thread_id: str
    run_id: str
    worker_id: str
    fence: int
    attempt: int
    deaths: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallRecord:
    """A tool call in the journal. It is recorded before it runs, so that a crash cannot hide the call.

    In state "awaiting" the call needs approval first. `result` is the `tool_execution.result` of the stored tool
    message once the call has ended.
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
    """A chat thread that the agent takes part in. `first_ref` and `last_ref` are the lowest and the highest id of the
    messages that the agent accepted there."""

    channel_id: str
    thread_key: str
    first_ref: str
    last_ref: str
