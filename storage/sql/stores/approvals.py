"""Runs that wait for people: suspended with a question, and queued again with its answer."""

from datetime import UTC, datetime

from sqlalchemy import Connection, bindparam, func, select, update

from core.domain.approval import CHOICES, Approval, tools_always_allowed
from core.domain.ids import new_id
from core.domain.threads import Ask, Lease
from core.stores import DeliveryDraft
from storage.sql.database import Database
from storage.sql.rows import ask_from_row
from storage.sql.statements import CompiledStatement
from storage.sql.stores.conversations import lock_thread
from storage.sql.stores.run_endings import insert_deliveries
from storage.sql.stores.run_transitions import resume_run, touch_thread
from storage.sql.tables import leases, pending_asks, runs

EXPIRED_AT_ONCE_MAX = 100
_APPROVALS = select(pending_asks).where(pending_asks.c.kind == "approval")
_ANSWERED_APPROVALS = CompiledStatement(
    _APPROVALS.where(
        pending_asks.c.thread_id == bindparam("thread"), pending_asks.c.state == "answered"
    )
)


def suspend_run(connection: Connection, lease: Lease, approval: Approval) -> None:
    """Frees the lease, which is locked, and leaves the question to deliver."""
    asked = select(func.count()).where(pending_asks.c.run_id == lease.run_id)
    ordinal = 1 + connection.execute(asked).scalar_one()
    ask_id = new_id()
    connection.execute(
        pending_asks.insert(),
        {
            "ask_id": ask_id,
            "thread_id": lease.thread_id,
            "run_id": lease.run_id,
            "kind": "approval",
            "subject": approval.subject,
            "text": approval.text,
            "options": list(CHOICES),
            "state": "open",
            "created_at": datetime.now(UTC),
        },
    )
    draft = DeliveryDraft(slot="ask", ordinal=ordinal, body={"text": approval.text})
    insert_deliveries(connection, lease.run_id, (draft,), ask_id=ask_id)
    connection.execute(update(runs).where(runs.c.run_id == lease.run_id).values(status="waiting"))
    connection.execute(
        update(leases)
        .where(leases.c.thread_id == lease.thread_id)
        .values(run_id=None, worker_id=None)
    )
    touch_thread(connection, lease.thread_id, state="waiting")
    stopped = select(runs.c.stop_requested).where(runs.c.run_id == lease.run_id)
    if connection.execute(stopped).scalar_one():
        # the stop came before anybody could be asked: nobody is, and the run comes to its end
        asked = connection.execute(select(pending_asks).where(pending_asks.c.ask_id == ask_id))
        ask = ask_from_row(asked.mappings().one())
        resume_run(connection, ask, lease.thread_id, answer=None, person=None)


def expire_approvals(connection: Connection, asked_before: datetime) -> tuple[str, ...]:
    """Queues the runs whose question is that old and open still; answers their ids."""
    old = _APPROVALS.where(
        pending_asks.c.state == "open", pending_asks.c.created_at < asked_before
    ).order_by(pending_asks.c.thread_id)
    found = connection.execute(old.limit(EXPIRED_AT_ONCE_MAX)).mappings().all()
    expired: list[str] = []
    for row in found:
        lock_thread(connection, row["thread_id"])
        this = select(pending_asks).where(pending_asks.c.ask_id == row["ask_id"])
        ask = ask_from_row(connection.execute(this).mappings().one())
        if ask.state == "open":
            resume_run(
                connection, ask, row["thread_id"], answer=None, person=None, unanswered="expired"
            )
            expired.append(ask.run_id)
    return tuple(expired)


def newest_approval(connection: Connection, run_id: str) -> Ask | None:
    statement = _APPROVALS.where(pending_asks.c.run_id == run_id)
    row = connection.execute(statement.order_by(pending_asks.c.ask_id.desc())).mappings().first()
    return ask_from_row(row) if row else None


async def approved_tools(database: Database, thread_id: str) -> frozenset[str]:
    rows = await database.read_statement(_ANSWERED_APPROVALS, {"thread": thread_id})
    return frozenset[str]().union(*(tools_always_allowed(ask_from_row(row)) for row in rows))
