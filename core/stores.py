"""Protocols for the database, which is authoritative. Each method is one transaction.

A method that accepts a `Lease` locks the lease row and raises LeaseLost if the lease's fence is no longer the newest.
"""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.agents.definition import AgentVersion
from core.domain.actions import StoredAction
from core.domain.approval import Approval
from core.domain.audit import AuditEntry
from core.domain.budget import PlannedCall, Reservation
from core.domain.events import Cursor, RunEvent
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.schedules import (
    DueSchedule,
    EventRefusal,
    Firing,
    FiringPlan,
    FiringState,
    Schedule,
    ScheduleChange,
    ScheduleLimits,
    TriggerEvent,
)
from core.domain.threads import (
    Address,
    Ask,
    ChatMessage,
    Decision,
    FinishReason,
    FollowMode,
    JoinedThread,
    Lease,
    ListedThread,
    Person,
    Position,
    Receipt,
    Reply,
    Run,
    Selection,
    Thread,
    ThreadInput,
    ThreadSnapshot,
    ToolCallRecord,
    Usage,
)

Decide = Callable[[ThreadSnapshot | None], Decision]


class InboundCursors(Protocol):
    """How far the channels of a platform have been read, for catching up after downtime."""

    async def advance_cursors(self, platform: str, cursors: Mapping[str, str]) -> None:
        """Stores how far each channel has been read, by scope. A cursor never moves back; ids are compared by length,
        then as text."""
        ...

    async def cursors(self, platform: str) -> dict[str, str]:
        """Returns the cursor of each scope of the platform."""
        ...


class Inbox(InboundCursors, Protocol):
    """Claims incoming messages and clicks exactly once, before the platform receives its acknowledgement."""

    async def accept_action(self, action: StoredAction, decide: Decide) -> Receipt:
        """Claims the action's key, passes the thread's snapshot (None for a new thread) to `decide`, and applies the
        decision.

        `Accept` stores the input, creates the thread if necessary, answers the ask, and queues a run unless one is
        active. `Overhear` keeps a message that people wrote to each other, without claiming its key. An edit or a
        deletion of an input that no run has consumed changes or removes that input instead. A duplicate key changes
        nothing.
        """
        ...

    async def claim_key(self, dedupe_key: str, *, act: AuditEntry | None = None) -> bool:
        """Claims a key for an event that is not input, for example a command, and records the entry `act` in the audit
        log. Returns False, and records nothing, if the key was claimed before."""
        ...

    async def is_key_claimed(self, dedupe_key: str) -> bool: ...

    async def joined_threads(self, platform: str, workspace_id: str, *, limit: int) -> tuple[JoinedThread, ...]:
        """Returns the bound threads of a workspace, the most recently active first."""
        ...


class FollowModes(Protocol):
    """How the agent follows threads, as users chose it. `Inbox.accept_action` passes the mode to its decision."""

    async def set_mode(self, address: Address, mode: FollowMode, *, is_whole_channel: bool) -> None:
        """Stores the mode of the thread, or of all threads in its channel without a mode of their own."""
        ...

    async def find_channel_mode(self, address: Address) -> FollowMode | None:
        """Returns the mode that users chose for the address's channel, or None."""
        ...


class Conversations(Protocol):
    """Threads, their messages and their runs."""

    async def find(self, address: Address) -> ThreadSnapshot | None:
        """Returns the thread that is currently bound to the address, or None."""
        ...

    async def find_stopper_name(self, address: Address, run_id: str) -> str:
        """Returns the name of the user who last asked to stop the run at the address, or an empty string."""
        ...

    async def has_thread(self, address: Address) -> bool: ...

    async def find_run_address(self, channel: Address, message_ref: str) -> Address | None:
        """Returns the address of the active run whose request or question is this message in the channel, or None."""
        ...

    async def thread_ids(self, address: Address, *, begun_by: datetime | None = None) -> tuple[str, ...]:
        """Returns the ids of all threads that were ever bound to the address, newest first. With `begun_by`, a time by
        the platform's clock, leaves out threads whose first request was sent later."""
        ...

    async def snapshot(self, thread_id: str) -> ThreadSnapshot | None: ...

    async def create(self, address: Address, *, title: str = "") -> Thread: ...

    async def unbind(self, place: Address | str, *, by: Person | None = None, begun_by: datetime | None = None) -> bool:
        """Unbinds the address, or the address of the thread with this id, so that the next message starts a new thread.
        The old thread remains readable by its id. Returns False, and changes nothing, if a run is active there. A
        thread whose first request was sent after `begun_by` stays bound, because it is new already."""
        ...

    async def note_earlier_authors(self, thread_id: str, authors: Mapping[str, str]) -> None:
        """Stores who had written in the chat thread before the agent was called: their names by id."""
        ...

    async def note_author(self, address: Address, person: Person) -> None:
        """Counts a person without access as a participant of the chat thread at the address, if the agent has one.
        Nothing that they write is stored."""
        ...

    async def delete_thread(self, thread_id: str, *, by: Person | None = None) -> None:
        """Deletes the thread and all its rows. Its active run loses its lease, and its take-overs end."""
        ...

    async def unended_runs_of_person(self, address: Address, person_id: str) -> tuple[str, ...]:
        """Returns the unended runs that the person has requested in the conversations that `erase_person` covers."""
        ...

    async def erase_person(self, address: Address, person_id: str) -> "ErasedCounts":
        """Removes a person's messages, names, pairing and usage from all conversations of the address's workspace, or
        of all Discord servers. Costs stay, without the person. Summaries and others' quotations stay, too."""
        ...

    async def unbind_inactive_threads(self, before: datetime, *, limit: int) -> tuple[str, ...]:
        """Unbinds the threads that have had no activity since `before` and have no unended run. Returns their ids, the
        oldest first."""
        ...

    async def messages(
        self, thread_id: str, *, after_sequence: int = 0, limit: int | None = None
    ) -> tuple[Message, ...]:
        """Returns messages of all types, ordered by sequence."""
        ...

    async def llm_messages(self, thread_id: str) -> tuple[Message, ...]:
        """Returns only the LLM messages, ordered by sequence."""
        ...

    async def history(self, thread_id: str) -> tuple[Message, ...]:
        """Returns what has happened in the thread, ordered by sequence: all LLM messages, including summaries and the
        messages that they replace, the newest `browser_state` and the newest `image_context` messages."""
        ...

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        """Returns a message of the thread, or None if the thread has no message with this id."""
        ...

    async def run(self, run_id: str) -> Run | None: ...

    async def run_with_thread(self, run_id: str) -> tuple[Run, Thread] | None: ...

    async def load_run(self, run_id: str) -> "LoadedRun | None":
        """Reads everything that a worker needs to begin with a run. Returns None if the run does not exist."""
        ...

    async def unread_inputs(self, thread_id: str) -> tuple[ThreadInput, ...]:
        """Returns the messages and edits that no run has consumed yet, oldest first."""
        ...

    async def unread_talk(self, thread_id: str, before: datetime) -> tuple[ChatMessage, ...]:
        """Returns the messages that users wrote to each other before that time, that arrived as events and that no run
        has read, oldest first."""
        ...

    async def message_refs_to_mark(self, run_id: str) -> tuple[str, ...]:
        """Returns the users' messages that get the reaction for the end of the run: its request and the messages that
        it has read, except those that requested a later run or were read by one."""
        ...

    async def runs(self, thread_id: str) -> tuple[Run, ...]:
        """Returns the thread's runs, oldest first."""
        ...

    async def newest_runs(self, thread_id: str, *, before: str | None = None, limit: int) -> tuple[Run, ...]:
        """Returns the thread's newest runs that are older than the run `before`, newest first."""
        ...

    async def newest_threads(
        self, selection: Selection, *, before: Position | None = None, limit: int
    ) -> tuple[ListedThread, ...]:
        """Returns the threads after the position, most recently active first, including those whose address is bound to
        a newer thread. A person's threads are those in which they have requested a run."""
        ...

    async def runs_of_person(
        self, platform: str, workspace_id: str, person_id: str, *, limit: int, channel_id: str | None = None
    ) -> tuple[tuple[Run, Thread, str], ...]:
        """Returns the newest runs that the person requested in the workspace, or in one channel of it, newest first,
        each with its thread and the text of its request."""
        ...

    async def usage(self, *, thread_id: str | None = None, run_id: str | None = None) -> Usage: ...

    async def events(self, run_id: str, *, after: Cursor | None = None) -> tuple[RunEvent, ...]:
        """Returns the run's stored events after the cursor, in order. Streamed chunks are not stored."""
        ...

    async def events_so_far(self, run_id: str, *, after: Cursor) -> tuple[tuple[RunEvent, ...], bool]:
        """Like `events`. Also returns whether these are the last ones, because the run is over or unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """What a person thinks of the answer of a run. `reason` may be empty. `request` is the text of the run's request,
    which is read with the feedback and not stored with it."""

    run_id: str
    thread_id: str
    person: Person
    is_good: bool
    reason: str = ""
    request: str = ""
    given_at: datetime


class FeedbackStore(Protocol):
    """Feedback on runs. Of each person, only the last feedback on a run is kept."""

    async def record(self, feedback: Feedback) -> None:
        """Stores the feedback in place of the person's earlier one on the run. Does nothing if the thread is gone."""
        ...

    async def newest_feedback(self, *, limit: int, only_bad: bool = False) -> tuple[Feedback, ...]:
        """Returns the newest feedback, oldest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedCounts:
    """How many rows lost a person: messages, names in other rows, and usage."""

    messages: int
    names: int
    usage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A run with its thread, as one transaction saw them. `history` is what `Conversations.history` returns."""

    run: Run
    thread: Thread
    history: tuple[Message, ...]
    granted: frozenset[str]
    """The tools that users have always allowed in the thread."""
    schedules: tuple[Schedule, ...] = ()
    """The schedules of the thread's channel, and the requester's own, the newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    turn_id: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """Rows that one transaction of a run adds or updates. Messages are numbered in the given order after the thread's
    last.

    `started` calls are inserted and `finished` calls are updated. `taken_input_ids` name the inputs that the messages
    contain, and `heard_refs` the messages that users wrote to each other. `agent` is set when the run begins to work as
    that agent version. `deliveries` are those of a reply that the run leaves while it continues."""

    messages: tuple[Message, ...] = ()
    started: tuple[ToolCallRecord, ...] = ()
    finished: tuple[ToolCallRecord, ...] = ()
    events: tuple[RunEvent, ...] = ()
    usage: tuple[UsageEntry, ...] = ()
    taken_input_ids: tuple[str, ...] = ()
    heard_refs: tuple[str, ...] = ()
    sandbox_id: str | None = None
    agent: AgentVersion | None = None
    deliveries: tuple["DeliveryDraft", ...] = ()


NOTHING_NEW = JournalEntry()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended, and what remains to be delivered. A reply of kind "ask" leaves the thread waiting.

    `yields_to_input` means that the run continues instead if users wrote something that it has not read."""

    status: Literal["completed", "failed", "stopped"]
    finish_reason: FinishReason | None
    error: str | None = None
    reply: Reply | None = None
    deliveries: tuple["DeliveryDraft", ...] = ()
    yields_to_input: bool = False


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run has ended. `follower_id` is the run that was queued for what it did not read, or an empty string."""

    follower_id: str = ""


class RunClaims(Protocol):
    """Decides which worker executes a run."""

    async def claim(self, run_id: str, worker_id: str) -> Lease | None:
        """Acquires the thread's lease for a queued run, or for a running one whose worker is gone, and increments the
        attempt.

        Returns None if the run has ended, has to wait, or a living worker holds the thread. If the call raises, the
        lease may still have been acquired.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Returns an unfinished run to the queue. Does nothing if the lease is already lost."""
        ...

    async def heartbeat(self, worker_id: str) -> None:
        """Must be called every second. A worker counts as gone 4 s after its last heartbeat, by the database's
        clock."""
        ...

    async def remove_worker(self, worker_id: str) -> None:
        """Releases a worker's leases immediately. Call it only if the worker's process has ended."""
        ...

    async def claimable_runs(self) -> tuple[str, ...]:
        """Returns runs that are queued, or running under a worker that is gone, in the order in which to start them:
        channels, users and workspaces take turns, and each has its oldest first. The number of results is limited."""
        ...

    async def stopped_runs(self) -> tuple[str, ...]:
        """Returns those of the claimable runs that users asked to stop. The number of results is limited."""
        ...

    async def held_leases(self, worker_id: str) -> tuple[Lease, ...]:
        """Returns the leases that the worker has claimed and neither ended nor released."""
        ...


class RunJournal(Protocol):
    """Reads and writes of a run, reserved for the holder of its lease."""

    async def read_inputs(self, lease: Lease, entry: JournalEntry = NOTHING_NEW) -> tuple[ThreadInput, ...]:
        """Writes the entry, then returns the inputs that no run has consumed, in order of arrival."""
        ...

    async def begin_turn(
        self, lease: Lease, entry: JournalEntry, call: PlannedCall
    ) -> tuple[tuple[ThreadInput, ...], Reservation]:
        """Does what `read_inputs` and `Ledger.reserve` do, in one transaction.

        If `forget me` has removed words that the worker may have read since its claim, writes the entry and raises
        LeaseLost."""
        ...

    async def write(self, lease: Lease, entry: JournalEntry) -> None: ...

    async def finish(self, lease: Lease, entry: JournalEntry, ending: RunResult) -> RunEnd | None:
        """Ends the run. Writes nothing and returns None if the ending yields to input and an input is waiting that the
        entry does not consume; the run must then continue.

        Other endings end the run, and a new run is queued for the input.
        """
        ...

    async def suspend_run(self, lease: Lease, entry: JournalEntry, approval: Approval) -> None:
        """Asks for the approval and suspends the run, without its lease, until the approval is answered.

        If a stop was requested in the meantime, the run is queued instead, so that it can end without asking.
        """
        ...

    async def find_approval(self, run_id: str) -> Ask | None:
        """Returns the run's newest approval request, or None."""
        ...

    async def tool_call_records(self, run_id: str) -> tuple[ToolCallRecord, ...]:
        """Returns the run's tool calls in start order, so that a worker that takes over the run can repair them."""
        ...


class RunRequests(Protocol):
    async def request_stop(self, run_id: str, *, by: Person | None = None, at: datetime | None = None) -> bool:
        """Marks an active run to be stopped, together with the messages sent until `at`, or until now. Returns False if
        the run has ended."""
        ...

    async def retry_run(
        self, run_id: str, dedupe_key: str, *, continues: bool, by: Person | None = None, at: datetime | None = None
    ) -> str | None:
        """Queues a new run on the thread of a failed or limited run, asked for at `at` (default: now). Returns its id.

        Returns None if the key was claimed before, or if the thread has an active or newer run.
        """
        ...


DeliveryState = Literal["pending", "attempting", "delivered", "stale", "failed"]
DeliverySlot = Literal["status", "stream", "answer", "ask", "file", "notice"]


REPLY_ORDINALS = 1_000_000
"""The number of ordinals that each reply of a run may use in the outbox. Those of its second reply begin here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDraft:
    """Content to show in the thread. The pair of slot and ordinal is unique within a run. The format of `body`
    depends on the slot. The answers and files of a run's replies have REPLY_ORDINALS places each."""

    slot: DeliverySlot
    ordinal: int = 0
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Content of a run and the state of its delivery to the chat platform.

    `pending`: not yet tried. `attempting`: possibly sent, so look for it before sending again. `stale`: sent, but must
    be edited.
    """

    delivery_id: str
    run_id: str
    slot: DeliverySlot
    ordinal: int
    body: JsonObject
    state: DeliveryState
    message_ref: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLease:
    """The right to deliver a run's messages, with a fencing token. `run`, `address` and `has_earlier` (see
    `Deliveries.has_earlier`) are as of the claim."""

    run: Run
    address: Address
    worker_id: str
    fence: int
    has_earlier: bool = False


class Deliveries(Protocol):
    """The outbox. Ending a run inserts its drafts; answering an ask marks its delivery stale."""

    async def open_runs(self, *, for_worker: str = "") -> tuple[str, ...]:
        """Returns runs with pending deliveries, oldest first, except on the platform "api", which shows no runs.

        With `for_worker`, runs that another living worker delivers are excluded.
        """
        ...

    async def has_earlier(self, run_id: str) -> bool:
        """Whether an earlier run of the same thread has pending deliveries."""
        ...

    async def claim(
        self, run_id: str, worker_id: str, *, platforms: Container[str] | None = None
    ) -> DeliveryLease | None:
        """Claims the right to deliver the run. Returns None if another living worker delivers it, if nothing is left to
        deliver, or if it is on none of the platforms."""
        ...

    async def plan_deliveries(self, lease: DeliveryLease, drafts: Sequence[DeliveryDraft]) -> tuple[Delivery, ...]:
        """Inserts the drafts that are missing, and leaves existing deliveries unchanged.

        Returns all deliveries of the run by slot (status, answer, ask, file, notice), then by ordinal.
        """
        ...

    async def record(self, lease: DeliveryLease, delivery: Delivery, *, was: DeliveryState | None = None) -> None:
        """Stores the delivery's state, message_ref, error and body. Raises LeaseLost if another worker delivers the
        run now. `was` is the state that this process recorded before, if any."""
        ...

    async def reopen_delivery(self, run_id: str) -> bool:
        """Makes the refused messages of a run pending again. Returns False, and changes nothing, if the run has not
        ended or neither its answer nor its question was refused."""
        ...

    async def close(self, lease: DeliveryLease) -> bool:
        """Marks the run as delivered. Returns False, and changes nothing, if the run is active or a delivery is
        neither delivered nor failed."""
        ...


class Asks(Protocol):
    async def find_ask(self, ask_id: str) -> Ask | None: ...

    async def ask_of_run(self, run_id: str) -> Ask | None: ...

    async def asks_of_run(self, run_id: str) -> tuple[Ask, ...]:
        """Returns everything that the run has asked, oldest first. `is_written_in_thread` is not looked up."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverClaim:
    """A person's exclusive claim on a take-over link, through which that person controls a thread's browser.

    `cookie_hash` identifies the person's own browser. `expires_at` is when the link expires.
    """

    link_key: str
    thread_id: str
    cookie_hash: str
    expires_at: datetime
    used_at: datetime
    is_ended: bool = False


class TakeoverClaims(Protocol):
    """Claims of take-over links, shared by all processes that serve the links."""

    async def claim(self, claim: TakeoverClaim) -> bool:
        """Stores the first claim of a link. Returns False if the link has been claimed before."""
        ...

    async def find(self, link_key: str) -> TakeoverClaim | None: ...

    async def record_use(self, link_key: str, used_at: datetime) -> None:
        """Records when the browser was last used, so that no other process ends the take-over as idle."""
        ...

    async def end(self, link_key: str) -> bool:
        """Ends the claim. Returns False if it has already ended or does not exist."""
        ...

    async def active_claims(self) -> tuple[TakeoverClaim, ...]:
        """Returns the claims that have not ended. Deletes claims whose links expired more than a day ago."""
        ...


class Schedules(Protocol):
    """Schedules and their firings. The database decides that each time fires once, whichever process sees it first."""

    async def save(self, schedule: Schedule, limits: ScheduleLimits, *, by: Person, change: ScheduleChange) -> bool:
        """Stores the schedule, or replaces the stored one with its id. `change` names the action for the audit log.
        Returns False, and stores nothing, if the owner or the workspace would have too many schedules, if a new
        schedule has a known id, if a schedule to change is gone, or if one to resume is active already.

        Proposals count until they are `PROPOSAL_DAYS` old."""
        ...

    async def delete(self, schedule_id: str, *, by: Person) -> bool: ...

    async def pause_schedule(self, schedule_id: str, *, problem: str = "", by: Person) -> bool:
        """Pauses a schedule that is armed, and drops its pending firing. Returns False if it is not armed, or gone."""
        ...

    async def find(self, schedule_id: str) -> Schedule | None: ...

    async def list_schedules(
        self, selection: Selection, *, after: Position | None = None, limit: int | None = None
    ) -> tuple[Schedule, ...]:
        """Returns the schedules that have not ended and come after the position, by their next time. A person's
        schedules are those that they armed."""
        ...

    async def find_time_of_work(self) -> datetime | None:
        """Returns the database's current time if `due_schedules` or `claim_pending_firings` may return something now,
        else None."""
        ...

    async def due_schedules(self, now: datetime, may_fire: Callable[[Schedule], bool]) -> tuple[DueSchedule, ...]:
        """Returns schedules whose time has come, that may fire and have no pending firing, the longest overdue first.
        The number of results is limited."""
        ...

    async def begin_firing(
        self, due: DueSchedule, plan: FiringPlan, *, due_at: datetime, claimed_until: datetime
    ) -> Firing | None:
        """Moves the schedule on to the plan's next time, and stores a firing for `due_at`: the schedule's time, or now
        if a user asks for a firing.

        Returns None if another process was first, if a firing is pending, or if the schedule was changed, paused or
        deleted."""
        ...

    async def begin_event_firing(
        self, schedule: Schedule, event: TriggerEvent, *, claim_seconds: float
    ) -> Firing | EventRefusal:
        """Stores a firing for the event, claimed by this process for `claim_seconds`. If the event starts no task,
        returns the reason instead. Each event starts a task at most once, and all events that were handled over
        `EVENT_LATE_SECONDS` too late start one together."""
        ...

    async def list_triggers(self, place: Address | None = None) -> tuple[Schedule, ...]:
        """Returns the schedules that wait for an event, in the channel of the place or everywhere."""
        ...

    async def claim_pending_firings(
        self, now: datetime, claimed_until: datetime, platforms: Collection[str]
    ) -> tuple[Firing, ...]:
        """Claims and returns the pending firings on these platforms that no process works on any more."""
        ...

    async def find_group_thread(self, firing: Firing) -> Firing | None:
        """Returns the firing with the thread that an earlier event of its group has opened, or unchanged if no event
        has. Returns None while an earlier firing of the group is pending."""
        ...

    async def record_announcement(self, firing: Firing, message_ref: str) -> bool:
        """Stores the message that announces the firing, and its thread. Returns False if the firing is gone."""
        ...

    async def close(self, firing_id: str, state: FiringState, *, run_id: str | None = None) -> None:
        """Ends a pending firing. One that fired is stored as joined if the run was begun by another message. Deletes
        its schedule if that has ended."""
        ...
