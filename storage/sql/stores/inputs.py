"""An accepted arrival becomes an input of its thread, or amends one that no run has taken up yet."""

from datetime import UTC, datetime

from sqlalchemy import Connection, bindparam, delete, func, select, update

from core.domain.approval import choice_of
from core.domain.ids import new_id
from core.domain.threads import (
    Accept,
    Address,
    Arrival,
    Ask,
    Person,
    Receipt,
    Run,
    Thread,
    ThreadSnapshot,
)
from storage.sql.rows import arrival_to_row, run_from_row, thread_to_row
from storage.sql.statements import CompiledStatement
from storage.sql.stores.run_transitions import (
    close_ask,
    queue_run,
    resume_run,
    stop_unstarted_run,
    touch_thread,
)
from storage.sql.tables import runs, thread_inputs, threads

_ADD_THREAD = CompiledStatement(threads.insert())
_ADD_INPUT = CompiledStatement(thread_inputs.insert())
_NEXT_POSITION = CompiledStatement(
    select(func.coalesce(func.max(thread_inputs.c.position), 0) + 1).where(
        thread_inputs.c.thread_id == bindparam("thread")
    )
)
_NEXT_INPUT = CompiledStatement(
    select(thread_inputs.c.author_id, thread_inputs.c.author_name, thread_inputs.c.message_ref)
    .where(thread_inputs.c.thread_id == bindparam("thread"), thread_inputs.c.taken_by.is_(None))
    .order_by(thread_inputs.c.position)
    .limit(1)
)


def store_input(
    connection: Connection, arrival: Arrival, decision: Accept, snapshot: ThreadSnapshot | None
) -> Receipt:
    """Stores the arrival as an input; makes the thread and the run where there is none; answers the open ask."""
    thread = snapshot.thread if snapshot else insert_thread(connection, arrival.address)
    active = snapshot.active_run if snapshot else None
    if active is not None and active.status == "waiting" and snapshot is not None:
        return answer_approval(connection, arrival, decision, snapshot)
    asking = _asking_run(connection, arrival, decision, snapshot)
    request_ref = (asking and asking.request_ref) or arrival.message_ref
    agent_id = arrival.agent_id or (asking and asking.agent_id)
    run = active or queue_run(connection, thread, arrival.author, request_ref, agent_id=agent_id)
    insert_input(connection, thread.thread_id, arrival)
    if active:
        touch_thread(connection, thread.thread_id)
    return Receipt(
        decision=decision,
        thread_id=thread.thread_id,
        run_id=run.run_id,
        is_new_run=active is None,
        answered_ask=_answer(connection, arrival, decision, snapshot),
    )


def answer_approval(
    connection: Connection, arrival: Arrival, decision: Accept, snapshot: ThreadSnapshot
) -> Receipt:
    """The waiting run goes on with whatever a person says; words that are no button's stay as a message, too."""
    thread_id, ask = snapshot.thread.thread_id, _asked(arrival, decision, snapshot)
    if ask is None or choice_of(arrival.text) is None:
        insert_input(connection, thread_id, arrival)
    answered = ask and resume_run(
        connection, ask, thread_id, answer=arrival.text, person=arrival.author
    )
    return Receipt(
        decision=decision,
        thread_id=thread_id,
        run_id=snapshot.active_run.run_id if snapshot.active_run else None,
        is_new_run=answered is not None,
        answered_ask=answered,
    )


def insert_thread(connection: Connection, address: Address, *, title: str = "") -> Thread:
    now = datetime.now(UTC)
    thread = Thread(
        thread_id=new_id(),
        address=address,
        state="idle",
        title=title,
        created_at=now,
        last_activity_at=now,
    )
    _ADD_THREAD.run(connection, thread_to_row(thread))
    return thread


def insert_input(connection: Connection, thread_id: str, arrival: Arrival) -> None:
    """The thread is locked, so that no other input gets the same position."""
    ((position,),) = _NEXT_POSITION.found(connection, {"thread": thread_id})
    place = {"input_id": new_id(), "thread_id": thread_id, "position": position}
    _ADD_INPUT.run(connection, {**place, **arrival_to_row(arrival)})


def _answer(
    connection: Connection, arrival: Arrival, decision: Accept, snapshot: ThreadSnapshot | None
) -> Ask | None:
    ask = _asked(arrival, decision, snapshot)
    return ask and close_ask(connection, ask, answer=arrival.text, person=arrival.author)


def _asked(arrival: Arrival, decision: Accept, snapshot: ThreadSnapshot | None) -> Ask | None:
    """Whatever a person says to a waiting thread answers its ask, unless it was meant for another one."""
    if snapshot is None or snapshot.open_ask is None or arrival.kind not in ("message", "answer"):
        return None
    return snapshot.open_ask if decision.ask_id in (None, snapshot.open_ask.ask_id) else None


def _asking_run(
    connection: Connection, arrival: Arrival, decision: Accept, snapshot: ThreadSnapshot | None
) -> Run | None:
    """An answer goes on with the request that led to the question, so that its question mark does not stay, and with
    the agent that asked."""
    ask = _asked(arrival, decision, snapshot)
    statement = select(runs).where(runs.c.run_id == (ask.run_id if ask else ""))
    row = connection.execute(statement).mappings().one_or_none() if ask else None
    return run_from_row(row) if row else None


def amend_input(
    connection: Connection, arrival: Arrival, decision: Accept, snapshot: ThreadSnapshot | None
) -> Receipt:
    """An edit changes the input that no run has taken up, or tells the run that took it; a deletion removes it.

    What was said to no run of this thread needs no amending.
    """
    if snapshot is None:
        return Receipt(decision=decision)
    thread_id, active = snapshot.thread.thread_id, snapshot.active_run
    untaken, is_known = _inputs_with(connection, thread_id, arrival.message_ref)
    receipt = Receipt(
        decision=decision, thread_id=thread_id, run_id=active.run_id if active else None
    )
    if untaken is None:
        if is_known and arrival.kind == "edit":
            return store_input(connection, arrival, decision, snapshot)
        return receipt
    if arrival.kind == "edit":
        changed: dict[str, object] = {"text": arrival.text, "sent_at": arrival.sent_at}
        if arrival.files:
            changed["files"] = arrival_to_row(arrival)["files"]
        connection.execute(
            update(thread_inputs).where(thread_inputs.c.input_id == untaken).values(changed)
        )
        return receipt
    connection.execute(delete(thread_inputs).where(thread_inputs.c.input_id == untaken))
    if active and active.status == "queued" and active.attempt == 0:
        stop_unstarted_run(connection, active)
    return receipt


def _inputs_with(
    connection: Connection, thread_id: str, message_ref: str
) -> tuple[str | None, bool]:
    """The input of that message which no run has taken up, and whether there is any input of it at all."""
    if not message_ref:
        return None, False
    statement = (
        select(thread_inputs.c.input_id, thread_inputs.c.taken_by)
        .where(thread_inputs.c.thread_id == thread_id, thread_inputs.c.message_ref == message_ref)
        .order_by(thread_inputs.c.position)
    )
    rows = connection.execute(statement).all()
    untaken = next((row.input_id for row in rows if row.taken_by is None), None)
    return untaken, bool(rows)


def read_next_input(connection: Connection, thread_id: str) -> tuple[Person, str] | None:
    """Author and message of the first input that no run has taken up."""
    row = _NEXT_INPUT.first(connection, {"thread": thread_id})
    if row is None:
        return None
    return Person(person_id=row["author_id"], name=row["author_name"]), row["message_ref"]
