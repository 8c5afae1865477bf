"""The ports to the database, the truth of the product. Each method is one transaction.

A method that takes a `Lease` locks the lease row and raises LeaseLost when its fence is no longer the newest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.agents.definition import AgentVersion
from core.domain.approval import Approval
from core.domain.audit import AuditEntry
from core.domain.events import Cursor, RunEvent
from core.domain.messages import JsonObject, Message
from core.domain.threads import (
    Address,
    Ask,
    Decision,
    FinishReason,
    InboxItem,
    Lease,
    Person,
    Receipt,
    Reply,
    Run,
    Thread,
    ThreadInput,
    ThreadSnapshot,
    ToolCallRecord,
    Usage,
)

Decide = Callable[[ThreadSnapshot | None], Decision]


class Inbox(Protocol):
    """Everything that comes in, claimed before the platform is acknowledged."""

    async def accept(self, arrival: InboxItem, decide: Decide) -> Receipt:
        """Claims the key, decides on the snapshot (None: no such thread yet) and carries the decision out.

        `Accept` stores the input, makes the thread where there is none, answers the ask, and makes a queued run unless
        one is active. A kind "edit" or "delete" with the message_ref of an input that no run has taken up changes or
        removes that input instead. A duplicate key changes nothing.
        """
        ...

    async def claim(self, dedupe_key: str, *, act: AuditEntry | None = None) -> bool:
        """Claims a key alone, for things that are not input (a command word), and records the act with it.
        False: claimed before, and nothing is recorded."""
        ...

    async def is_claimed(self, dedupe_key: str) -> bool: ...

    async def forward(self, platform: str, scope: str, cursor: str) -> None:
        """Remembers how far a channel has been read; a cursor never goes back (ids compare by length, then text)."""
        ...

    async def cursors(self, platform: str) -> dict[str, str]:
        """Scope to cursor, for catching up after downtime."""
        ...


class Conversations(Protocol):
    """Threads and what was said in them."""

    async def find(self, address: Address) -> ThreadSnapshot | None:
        """The thread that the address is bound to now."""
        ...

    async def snapshot(self, thread_id: str) -> ThreadSnapshot | None: ...

    async def create(self, address: Address, *, title: str = "") -> Thread: ...

    async def unbind(self, address: Address, *, by: Person | None = None) -> None:
        """Unbinds the address, so that the next arrival starts a new thread. The old one stays readable by id."""
        ...

    async def forget(self, thread_id: str, *, by: Person | None = None) -> None:
        """Deletes the thread with all rows that hang on it. Its active run loses its lease."""
        ...

    async def messages(
        self, thread_id: str, *, after_sequence: int = 0, limit: int | None = None
    ) -> tuple[Message, ...]:
        """All types, in sequence."""
        ...

    async def history(self, thread_id: str) -> tuple[Message, ...]:
        """The LLM messages, in sequence."""
        ...

    async def recent(self, thread_id: str) -> tuple[Message, ...]:
        """What the next model call is made from, in sequence: the newest `summary` and the LLM messages that it does
        not replace, with the newest `browser_state` and the newest `image_context`."""
        ...

    async def message(self, thread_id: str, message_id: str) -> Message | None:
        """One message of the thread; None also for one of another thread."""
        ...

    async def run(self, run_id: str) -> Run | None: ...

    async def runs(self, thread_id: str) -> tuple[Run, ...]:
        """Oldest first."""
        ...

    async def usage(self, *, thread_id: str | None = None, run_id: str | None = None) -> Usage: ...

    async def events(self, run_id: str, *, after: Cursor | None = None) -> tuple[RunEvent, ...]:
        """The stored events of a run after the cursor, in order; chunks are not among them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    turn_id: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """What one transaction of a run adds. Messages are numbered in the given order, after those of the thread.

    `agent` is the one that the run begins to work as. `started` calls are inserted, `finished` ones updated.
    `taken_input_ids` are the inputs that the messages hold.
    """

    messages: tuple[Message, ...] = ()
    started: tuple[ToolCallRecord, ...] = ()
    finished: tuple[ToolCallRecord, ...] = ()
    events: tuple[RunEvent, ...] = ()
    usage: tuple[UsageEntry, ...] = ()
    taken_input_ids: tuple[str, ...] = ()
    sandbox_id: str | None = None
    agent: AgentVersion | None = None


NOTHING_NEW = JournalEntry()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended, and what it leaves to deliver. An ask leaves the thread waiting."""

    status: Literal["completed", "failed", "stopped"]
    finish_reason: FinishReason | None
    error: str | None = None
    reply: Reply | None = None
    deliveries: tuple["DeliveryDraft", ...] = ()


class RunClaims(Protocol):
    """Who may run what."""

    async def claim(self, run_id: str, worker_id: str) -> Lease | None:
        """Takes the thread's lease for a queued run, or a running one whose worker is gone; counts the attempt up.
        None: it is over, a living worker holds the thread, or it has to wait. One that raises may have taken it."""
        ...

    async def release(self, lease: Lease) -> None:
        """Hands an unfinished run back as queued. Does nothing when the lease is lost already."""
        ...

    async def heartbeat(self, worker_id: str) -> None:
        """To be called every second; a worker is gone 4 s after its last one, by the database's clock."""
        ...

    async def remove_worker(self, worker_id: str) -> None:
        """The worker's process is known to have ended: what it held is free at once."""
        ...

    async def claimable_runs(self) -> tuple[str, ...]:
        """Runs that are queued, or running under a worker that is gone: the oldest ones first, and not all at once."""
        ...

    async def held(self, worker_id: str) -> tuple[Lease, ...]:
        """What that worker has claimed and neither ended nor released."""
        ...


class RunJournal(Protocol):
    """What the holder of a lease reads and writes."""

    async def inputs(
        self, lease: Lease, entry: JournalEntry = NOTHING_NEW
    ) -> tuple[ThreadInput, ...]:
        """Writes the entry first; then the inputs that no run has taken up, in the order they came in."""
        ...

    async def write(self, lease: Lease, entry: JournalEntry) -> None: ...

    async def finish(self, lease: Lease, entry: JournalEntry, ending: RunResult) -> bool:
        """Ends the run, unless an input is waiting that the entry does not take: then writes nothing, answers False,
        and the run goes on. Stopped and failed runs end all the same; a new queued run is then made for the input."""
        ...

    async def suspend(self, lease: Lease, entry: JournalEntry, approval: Approval) -> None:
        """The run waits, without its lease, until the approval that is asked for here is answered.

        Where it was asked to stop meanwhile nobody is asked: it is queued, to come to its end.
        """
        ...

    async def approval(self, run_id: str) -> Ask | None:
        """The newest one that the run has asked for."""
        ...

    async def approved_tools(self, thread_id: str) -> frozenset[str]:
        """Tools that somebody has allowed for the rest of the thread."""
        ...

    async def calls(self, run_id: str) -> tuple[ToolCallRecord, ...]:
        """The calls of the run, in the order they were started: what a takeover needs to know."""
        ...


class StopRequests(Protocol):
    async def request_stop(self, run_id: str, *, by: Person | None = None) -> bool:
        """Marks an active run as to be stopped. False: it is over."""
        ...

    async def retry(
        self, run_id: str, dedupe_key: str, *, continues: bool, by: Person | None = None
    ) -> str | None:
        """A new queued run on the thread of a failed or limited one, claimed by the key; None: claimed before, or the
        thread has an active run, or a newer run than this one."""
        ...


DeliverySlot = Literal["status", "answer", "ask", "file", "notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDraft:
    """Something to show in the thread: (slot, ordinal) is unique in a run. `body` is what the slot needs."""

    slot: DeliverySlot
    ordinal: int = 0
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`pending`: not tried. `attempting`: perhaps sent, look before sending again. `stale`: sent, must be edited."""

    delivery_id: str
    run_id: str
    slot: DeliverySlot
    ordinal: int
    body: JsonObject
    state: Literal["pending", "attempting", "delivered", "stale", "failed"]
    message_ref: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLease:
    """The right to show a run, fenced like a lease."""

    run_id: str
    worker_id: str
    fence: int


class Deliveries(Protocol):
    """The outbox. Ending a run inserts its drafts; answering an ask turns its delivery stale."""

    async def open_runs(self, *, for_worker: str = "") -> tuple[str, ...]:
        """Runs with something left to show, on platforms that show runs (all but "api"), oldest first. With
        `for_worker` none that another living worker shows."""
        ...

    async def claim(self, run_id: str, worker_id: str) -> DeliveryLease | None:
        """None: another living worker shows it, or there is nothing left to show."""
        ...

    async def plan(
        self, rendering: DeliveryLease, drafts: Sequence[DeliveryDraft]
    ) -> tuple[Delivery, ...]:
        """Inserts the drafts that are not there yet (the others stay as they are) and answers all of the run's, in
        the order status, answer, ask, file, notice and then ordinal."""
        ...

    async def record(self, rendering: DeliveryLease, delivery: Delivery) -> None:
        """Stores state, message_ref, error and body. LeaseLost when another shows the run now."""
        ...

    async def close(self, rendering: DeliveryLease) -> bool:
        """Everything is shown. False, and nothing done, if a delivery is not delivered or failed, or the run is on."""
        ...


class Asks(Protocol):
    async def ask(self, ask_id: str) -> Ask | None:
        """By its own id."""
        ...

    async def ask_of_run(self, run_id: str) -> Ask | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverClaim:
    """Which person controls the browser behind a take-over link.

    `cookie_hash` identifies that person's own browser. `expires_at` is when the link expires.
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
        """Returns False if the claim has ended already or does not exist."""
        ...

    async def active(self) -> tuple[TakeoverClaim, ...]:
        """Claims that have not ended. Deletes claims whose links expired more than a day ago."""
        ...
