"""The end of a run: its status, what it leaves to deliver, its ask, and the run that follows it."""

from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection, bindparam, func, select, update

from core.domain.ids import new_id
from core.domain.messages import JsonObject
from core.domain.threads import Lease, Reply
from core.stores import DeliveryDraft, RunEnding
from storage.sql.rows import RowValues
from storage.sql.statements import CompiledStatement
from storage.sql.stores.conversations import read_open_ask, read_thread
from storage.sql.stores.inputs import read_next_input
from storage.sql.stores.run_transitions import close_ask, queue_run, touch_thread
from storage.sql.tables import deliveries, leases, pending_asks, runs, usages
from storage.sql.upserts import insert_ignoring_conflicts

_ANSWERED = (
    select(usages.c.model)
    .where(usages.c.run_id == bindparam("run"), usages.c.turn_id != "")
    .order_by(usages.c.usage_id.desc())
    .limit(1)
    .scalar_subquery()
)
"""The model of the run's last turn; what is asked beside turns is booked without one."""
_END = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("run"))
    .values(
        status=bindparam("new_status"),
        finish_reason=bindparam("reason"),
        error=bindparam("new_error"),
        model=func.coalesce(_ANSWERED, runs.c.model),
        finished_at=bindparam("now"),
    )
)
_FREE = CompiledStatement(
    update(leases)
    .where(leases.c.thread_id == bindparam("thread"))
    .values(run_id=None, worker_id=None)
)
_ADD_DELIVERIES = CompiledStatement(partial(insert_ignoring_conflicts, deliveries))


def end_run(connection: Connection, lease: Lease, ending: RunEnding) -> None:
    """Ends the run of the lease, which is locked and is free afterwards."""
    ended = {
        "run": lease.run_id,
        "new_status": ending.status,
        "reason": ending.finish_reason,
        "new_error": ending.error,
        "now": datetime.now(UTC),
    }
    _END.run(connection, ended)
    _FREE.run(connection, {"thread": lease.thread_id})
    _withdraw_open_ask(connection, lease.thread_id)
    ask_id = None
    if ending.reply is not None and ending.reply.kind != "answer":
        ask_id = _insert_ask(connection, lease, ending.reply)
    insert_deliveries(connection, lease.run_id, ending.deliveries, ask_id=ask_id)
    touch_thread(connection, lease.thread_id, state="waiting" if ask_id else "idle")
    _queue_follower(connection, lease.thread_id)


def insert_deliveries(
    connection: Connection,
    run_id: str,
    drafts: tuple[DeliveryDraft, ...],
    *,
    ask_id: str | None = None,
) -> None:
    """Inserts the drafts whose place in the run is free. The ask's body learns its id."""
    rows: list[RowValues] = []
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
        _ADD_DELIVERIES.run(connection, *rows)


def _withdraw_open_ask(connection: Connection, thread_id: str) -> None:
    """One that was passed over is closed when the next run ends."""
    ask = read_open_ask(connection, thread_id)
    if ask is not None:
        close_ask(connection, ask, answer=None, person=None)


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
    waiting = read_next_input(connection, thread_id)
    if waiting is None:
        return
    thread, (author, message_ref) = read_thread(connection, thread_id), waiting
    if thread is not None:
        queue_run(connection, thread, author, message_ref)
