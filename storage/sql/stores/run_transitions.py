"""New runs, and the answers and withdrawals of asks that go with them: steps shared by several transactions."""

from datetime import UTC, datetime
from typing import Literal

from sqlalchemy import Connection, bindparam, select, update

from core.domain.events import Cursor, RunEvent, RunFinished
from core.domain.ids import new_id
from core.domain.threads import Ask, Person, Run, Thread
from storage.sql.rows import ask_from_row, event_to_row, run_to_row
from storage.sql.statements import CompiledStatement
from storage.sql.tables import (
    deliveries,
    pending_asks,
    renderings,
    run_events,
    runs,
    thread_inputs,
    threads,
)

Unanswered = Literal["withdrawn", "expired"]

_ADD_RUN = CompiledStatement(runs.insert())
_ADD_RENDERING = CompiledStatement(renderings.insert())
_THREAD = update(threads).where(threads.c.thread_id == bindparam("thread"))
_TOUCH = CompiledStatement(_THREAD.values(last_activity_at=bindparam("now")))
_TURN_TO = CompiledStatement(
    _THREAD.values(last_activity_at=bindparam("now"), state=bindparam("new_state"))
)


def queue_run(
    connection: Connection,
    thread: Thread,
    requester: Person | None,
    request_ref: str,
    *,
    agent_id: str | None = None,
) -> Run:
    """Inserts a queued run of a thread that has no active one, and marks the thread as running. `agent_id`: asked for
    by name, or kept from the run that this one goes on with."""
    now = datetime.now(UTC)
    run = Run(
        run_id=new_id(),
        thread_id=thread.thread_id,
        status="queued",
        requester=requester,
        request_ref=request_ref,
        agent_id=agent_id,
        created_at=now,
    )
    _ADD_RUN.run(connection, run_to_row(run))
    is_shown = thread.address.platform != "api"
    rendering = {"run_id": run.run_id, "is_open": is_shown, "fence": 0, "worker_id": None}
    _ADD_RENDERING.run(connection, rendering)
    touch_thread(connection, thread.thread_id, state="running")
    return run


def touch_thread(connection: Connection, thread_id: str, *, state: str | None = None) -> None:
    values: dict[str, object] = {"thread": thread_id, "now": datetime.now(UTC)}
    if state is None:
        _TOUCH.run(connection, values)
    else:
        _TURN_TO.run(connection, {**values, "new_state": state})


def stop_unstarted_run(connection: Connection, run: Run) -> None:
    """Stops a queued run that nobody began, once nothing is left in its thread for it to take up."""
    waiting = select(thread_inputs.c.input_id).where(
        thread_inputs.c.thread_id == run.thread_id, thread_inputs.c.taken_by.is_(None)
    )
    if connection.execute(waiting.limit(1)).first() is not None:
        return
    connection.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(status="stopped", finish_reason="stopped", finished_at=datetime.now(UTC))
    )
    ended = RunEvent(
        run_id=run.run_id,
        thread_id=run.thread_id,
        cursor=Cursor(0, 1),
        event=RunFinished(status="stopped", finish_reason="stopped"),
        message_id=new_id(),
    )
    connection.execute(run_events.insert(), event_to_row(ended))
    touch_thread(connection, run.thread_id, state="idle")


def close_ask(
    connection: Connection,
    ask: Ask,
    *,
    answer: str | None,
    person: Person | None,
    unanswered: Unanswered = "withdrawn",
) -> Ask:
    """Closes an open ask: answered, or `unanswered` where there is no answer. What showed it must show it anew."""
    state = unanswered if answer is None else "answered"
    connection.execute(
        update(pending_asks)
        .where(pending_asks.c.ask_id == ask.ask_id)
        .values(
            state=state,
            answer=answer,
            answered_by_id=person.person_id if person else None,
            answered_by_name=person.name if person else None,
            answered_at=datetime.now(UTC),
        )
    )
    _outdate(connection, ask.run_id)
    row = connection.execute(select(pending_asks).where(pending_asks.c.ask_id == ask.ask_id))
    return ask_from_row(row.mappings().one())


def resume_run(
    connection: Connection,
    ask: Ask,
    thread_id: str,
    *,
    answer: str | None,
    person: Person | None,
    unanswered: Unanswered = "withdrawn",
) -> Ask:
    """Queues the waiting run again, with the answer or without one."""
    ended = close_ask(connection, ask, answer=answer, person=person, unanswered=unanswered)
    connection.execute(
        update(runs)
        .where(runs.c.run_id == ask.run_id, runs.c.status == "waiting")
        .values(status="queued", deaths=0, requeued_at=datetime.now(UTC))
    )
    touch_thread(connection, thread_id, state="running")
    return ended


def _outdate(connection: Connection, run_id: str) -> None:
    """The rendering first: whoever shows the run locks it before its deliveries."""
    connection.execute(
        select(renderings.c.run_id).where(renderings.c.run_id == run_id).with_for_update()
    )
    of_ask = (deliveries.c.run_id == run_id) & (deliveries.c.slot == "ask")
    connection.execute(
        update(deliveries)
        .where(of_ask, deliveries.c.state.in_(("pending", "attempting")))
        .values(is_outdated=True)
    )
    sent = connection.execute(
        update(deliveries).where(of_ask, deliveries.c.state == "delivered").values(state="stale")
    )
    if sent.rowcount:
        connection.execute(
            update(renderings).where(renderings.c.run_id == run_id).values(is_open=True)
        )
