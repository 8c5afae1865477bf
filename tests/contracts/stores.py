"""All stores over one database, and the small vocabulary that their tests are written in."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import text

from core.domain.actions import AskAnswered, IncomingMessage, MessageDeleted, MessageEdited, StoredAction
from core.domain.events import AgentEvent, Cursor, MessageAdded, RunEvent, RunFinished
from core.domain.ids import new_id
from core.domain.messages import Message
from core.domain.threads import Accept, Address, Decision, InputKind, Lease, Person, Receipt, Reply, ThreadSnapshot
from core.failpoints import Failpoint
from core.stores import Decide, DeliveryDraft, JournalEntry, RunResult
from storage.sql.database import Database
from storage.sql.stores.agents import SqlAgentVersions, SqlPlans
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.conversations import SqlConversations
from storage.sql.stores.deliveries import SqlDeliveries
from storage.sql.stores.inbox import SqlInbox
from storage.sql.stores.run_claims import SqlRunClaims, SqlRunRequests
from storage.sql.stores.run_journal import SqlRunJournal
from storage.sql.stores.run_transitions import SqlAsks
from storage.sql.stores.schedules import SqlSchedules
from storage.sql.stores.takeover_claims import SqlTakeoverClaims
from storage.sql.stores.talk import SqlFeedback
from storage.sql.stores.usage import SqlLedger
from storage.sql.stores.workspaces import SqlInstallations, SqlPairings
from tests.support.narrow import require

ALICE = Person(person_id="U1", name="alice")
BOB = Person(person_id="U2", name="bob")
ADDRESS = Address(platform="slack", workspace_id="T1", channel_id="C1", thread_key="100.1")
COMPLETED = RunResult(status="completed", finish_reason="stop", yields_to_input=True)
LIMITED = RunResult(status="completed", finish_reason="max_iterations")
STOPPED = RunResult(status="stopped", finish_reason="stopped")
FAILED = RunResult(status="failed", finish_reason=None, error="It broke.")
TEST = Failpoint("test.write")


@dataclass(frozen=True, slots=True)
class Stores:
    """Every store, over the same database."""

    database: Database
    inbox: SqlInbox
    conversations: SqlConversations
    claims: SqlRunClaims
    journal: SqlRunJournal
    stops: SqlRunRequests
    deliveries: SqlDeliveries
    asks: SqlAsks
    ledger: SqlLedger
    plans: SqlPlans
    agents: SqlAgentVersions
    audit: SqlAuditLog
    pairings: SqlPairings
    installations: SqlInstallations
    takeover_claims: SqlTakeoverClaims
    feedback: SqlFeedback
    schedules: SqlSchedules

    async def say(
        self,
        words: str,
        *,
        key: str | None = None,
        kind: InputKind = "message",
        decide: Decide | None = None,
        **changes: object,
    ) -> Receipt:
        """Alice writes into the thread; the key is the message's own unless given."""
        arrival = message(words, key=key or new_id(), kind=kind)
        return await self.inbox.accept_action(replace(arrival, **changes), decide or accept)

    async def started(self, words: str = "hello", worker: str = "w1", *, key: str | None = None) -> Lease:
        """A run that alice's message made, claimed."""
        receipt = await self.say(words, key=key)
        assert receipt.run_id is not None
        return require(await self.claims.claim(receipt.run_id, worker))

    async def finish(self, lease: Lease, ending: RunResult = COMPLETED, *, takes: bool = True) -> bool:
        """Ends the run; with `takes`, with everything that came in."""
        taken = tuple(one.input_id for one in await self.journal.read_inputs(lease)) if takes else ()
        entry = JournalEntry(taken_input_ids=taken)
        return await self.journal.finish(lease, entry, ending) is not None

    async def asked(self, question: str = "Which one?") -> tuple[Lease, str]:
        """A run that ended with a question; its lease and the ask's id."""
        lease = await self.started()
        assert await self.finish(lease, asking(question))
        ask = require(await self.asks.ask_of_run(lease.run_id))
        return lease, ask.ask_id

    async def show_all(self) -> None:
        """Closes every rendering, as delivery does once a run is shown completely."""
        await self.execute("UPDATE rendering SET is_open = :is_open", is_open=False)

    async def silence(self, worker_id: str) -> None:
        """Makes the worker's last heartbeat ten seconds old."""
        await self.execute(
            "UPDATE worker SET heartbeat_at = heartbeat_at - 10 WHERE worker_id = :worker", worker=worker_id
        )

    async def execute(self, statement: str, **values: object) -> None:
        await self.database.write(TEST, lambda c: c.execute(text(statement), values).close())

    async def count(self, table: str) -> int:
        return await self.database.read(
            lambda c: c.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()  # noqa: S608 - a test's own table
        )


def stores_over(database: Database) -> Stores:
    return Stores(
        database,
        SqlInbox(database),
        SqlConversations(database),
        SqlRunClaims(database),
        SqlRunJournal(database),
        SqlRunRequests(database),
        SqlDeliveries(database),
        SqlAsks(database),
        SqlLedger(database),
        SqlPlans(database),
        SqlAgentVersions(database),
        SqlAuditLog(database),
        SqlPairings(database),
        SqlInstallations(database),
        SqlTakeoverClaims(database),
        SqlFeedback(database),
        SqlSchedules(database),
    )


def accept(snapshot: ThreadSnapshot | None) -> Decision:
    return Accept()


def deciding(decision: Decision) -> Callable[[ThreadSnapshot | None], Decision]:
    return lambda snapshot: decision


KINDS = {"message": IncomingMessage, "edit": MessageEdited, "delete": MessageDeleted, "answer": AskAnswered}


def message(words: str, *, key: str, kind: InputKind = "message") -> StoredAction:
    return KINDS[kind](
        dedupe_key=key,
        address=ADDRESS,
        person=ALICE,
        text=words,
        message_ref=key,
        sent_at=datetime.now(UTC),
        is_addressed=True,
    )


def asking(question: str) -> RunResult:
    return RunResult(
        status="completed",
        finish_reason="agent_terminated",
        reply=Reply(kind="ask", text=question, options=("a", "b")),
        deliveries=(DeliveryDraft(slot="ask", body={"text": question}),),
    )


def told(lease: Lease, words: str) -> Message:
    """A message of the assistant."""
    return Message(
        type="assistant",
        content={"role": "assistant", "content": words},
        is_llm_message=True,
        thread_id=lease.thread_id,
        run_id=lease.run_id,
    )


def event(lease: Lease, n: int, what: AgentEvent) -> RunEvent:
    return RunEvent(run_id=lease.run_id, thread_id=lease.thread_id, cursor=Cursor(lease.attempt, n), event=what)


def added(lease: Lease, n: int, words: str) -> JournalEntry:
    """One message and the event that tells it."""
    whole = told(lease, words)
    return JournalEntry(messages=(whole,), events=(event(lease, n, MessageAdded(message=whole)),))


def ended(lease: Lease, n: int) -> JournalEntry:
    return JournalEntry(events=(event(lease, n, RunFinished(status="completed", finish_reason="stop")),))
