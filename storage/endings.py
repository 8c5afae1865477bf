"""The end of a run: its status, what it leaves to deliver, its ask, and the run that follows it."""

from datetime import UTC, datetime

from sqlalchemy import Connection, select, update

from core.ids import new_id
from core.messages import JsonObject
from core.stores import DeliveryDraft, RunEnding
from core.threads import Lease, Reply
from storage.inputs import next_input
from storage.queued_runs import end_ask, queue_run, touch_thread
from storage.rows import Values, ask_of, thread_of
from storage.tables import deliveries, leases, pending_asks, runs, threads
from storage.upserts import insert_or_skip


def end_run(connection: Connection, lease: Lease, ending: RunEnding) -> None:
    """Ends the run of the lease, which is locked and is free afterwards."""
    connection.execute(
        update(runs)
        .where(runs.c.run_id == lease.run_id)
        .values(
            status=ending.status,
            finish_reason=ending.finish_reason,
            error=ending.error,
            finished_at=datetime.now(UTC),
        )
    )
    connection.execute(
        update(leases)
        .where(leases.c.thread_id == lease.thread_id)
        .values(run_id=None, worker_id=None)
    )
    _withdraw_open_ask(connection, lease.thread_id)
    ask_id = None
    if ending.reply is not None and ending.reply.kind != "answer":
        ask_id = _insert_ask(connection, lease, ending.reply)
    insert_drafts(connection, lease.run_id, ending.deliveries, ask_id=ask_id)
    touch_thread(connection, lease.thread_id, state="waiting" if ask_id else "idle")
    _queue_follower(connection, lease.thread_id)


def insert_drafts(
    connection: Connection,
    run_id: str,
    drafts: tuple[DeliveryDraft, ...],
    *,
    ask_id: str | None = None,
) -> None:
    """Inserts the drafts whose place in the run is free. The ask's body learns its id."""
    rows: list[Values] = []
    for draft in drafts:
        body: JsonObject = draft.body
        if draft.slot == "ask" and ask_id is not None:
            body = {**body, "ask_id": ask_id}
        rows.append(
            {
                "delivery_id": new_id(),
                "run_id": run_id,
                "slot": draft.slot,
                "ordinal": draft.ordinal,
                "body": body,
                "state": "pending",
                "is_outdated": False,
            }
        )
    if rows:
        insert_or_skip(connection, deliveries, rows)


def _withdraw_open_ask(connection: Connection, thread_id: str) -> None:
    """A thread has one open ask at most; one that was passed over is closed when the next run ends."""
    statement = select(pending_asks).where(
        pending_asks.c.thread_id == thread_id, pending_asks.c.state == "open"
    )
    row = connection.execute(statement).mappings().one_or_none()
    if row is not None:
        end_ask(connection, ask_of(row), answer=None, person=None)


def _insert_ask(connection: Connection, lease: Lease, reply: Reply) -> str:
    ask_id = new_id()
    connection.execute(
        pending_asks.insert(),
        {
            "ask_id": ask_id,
            "thread_id": lease.thread_id,
            "run_id": lease.run_id,
            "text": reply.text,
            "options": list(reply.options),
            "state": "open",
            "created_at": datetime.now(UTC),
        },
    )
    return ask_id


def _queue_follower(connection: Connection, thread_id: str) -> None:
    """Whatever came in and was not taken up by the run that stopped or failed gets a run of its own."""
    waiting = next_input(connection, thread_id)
    if waiting is None:
        return
    row = connection.execute(select(threads).where(threads.c.thread_id == thread_id)).mappings()
    author, message_ref = waiting
    queue_run(connection, thread_of(row.one()), author, message_ref)
