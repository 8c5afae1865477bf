"""Transitions of runs, shared by several stores: queued, waiting for users, resumed and ended, with their asks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, update

from core.context.message_text import build_unread_message
from core.context.tokens import with_token_count
from core.domain.approval import Approval
from core.domain.events import Cursor, RunEvent, RunFinished
from core.domain.ids import new_id
from core.domain.json import JsonObject
from core.domain.messages import Message
from core.domain.schedules import FIRING_KEY
from core.domain.threads import APP_PREFIX, STILL_WANTED, Ask, Attention, Lease, Person, Run, Thread, ThreadSnapshot
from core.failpoints import Failpoint
from core.stores import DeliveryDraft, RunEnd, RunResult
from storage.sql.database import Store, reads, writes
from storage.sql.rows import RowValues, ask_from_row, event_to_row, input_from_row, message_to_row, run_to_row
from storage.sql.statements import CompiledStatement, insert_ignoring_conflicts
from storage.sql.stores.conversations import lock_thread, read_newest_run, read_next_input, read_open_ask, read_thread
from storage.sql.tables import (
    deliveries,
    leases,
    messages,
    pending_asks,
    renderings,
    run_events,
    runs,
    thread_inputs,
    threads,
)

Unanswered = Literal["withdrawn", "expired"]

_ADD_RUN = CompiledStatement(runs.insert())
_RUN_NUMBER, _ASK_NUMBER = (
    CompiledStatement(
        select(func.coalesce(func.max(table.c.number), 0) + 1).where(table.c.thread_id == bindparam("thread"))
    )
    for table in (runs, pending_asks)
)
"""The next number of the thread. The thread must be locked."""
_ADD_RENDERING = CompiledStatement(renderings.insert())
_THREAD = update(threads).where(threads.c.thread_id == bindparam("thread"))
_TOUCH = CompiledStatement(_THREAD.values(last_activity_at=bindparam("now")))
_TURN_TO = CompiledStatement(_THREAD.values(last_activity_at=bindparam("now"), state=bindparam("new_state")))


def insert_queued_run(
    connection: Connection,
    thread: Thread,
    requester: Person | None,
    request_ref: str,
    *,
    agent_id: str | None = None,
    attention: Attention = "addressed",
    requested_at: datetime,
) -> Run:
    """Inserts a queued run for a thread without an active run, and marks the thread as running. The caller must lock
    the thread.

    `agent_id` is the agent requested by name, or that of the run this one continues. `requested_at` is when the action
    that leads to the run was sent. If the requester's id is unknown, the run gets the requester of the previous run,
    whose budget then pays for it."""
    now = datetime.now(UTC)
    if requester is not None and not requester.person_id and (before := read_newest_run(connection, thread.thread_id)):
        requester = before.requester
    run = Run(
        run_id=new_id(),
        thread_id=thread.thread_id,
        status="queued",
        requester=requester,
        request_ref=request_ref,
        agent_id=agent_id,
        attention=attention,
        requested_at=requested_at,
        created_at=now,
    )
    number = _next_number(_RUN_NUMBER, connection, thread.thread_id)
    _ADD_RUN.execute(connection, {**run_to_row(run), "number": number})
    is_shown = thread.address.platform != "api"
    rendering = {"run_id": run.run_id, "is_open": is_shown, "fence": 0, "worker_id": None}
    _ADD_RENDERING.execute(connection, rendering)
    touch_thread(connection, thread.thread_id, state="running")
    return run


def _next_number(statement: CompiledStatement, connection: Connection, thread_id: str) -> int:
    ((number,),) = statement.fetch_tuples(connection, {"thread": thread_id})
    return number


def touch_thread(connection: Connection, thread_id: str, *, state: str | None = None) -> None:
    values: dict[str, object] = {"thread": thread_id, "now": datetime.now(UTC)}
    if state is None:
        _TOUCH.execute(connection, values)
    else:
        _TURN_TO.execute(connection, {**values, "new_state": state})


def request_stop(connection: Connection, snapshot: ThreadSnapshot, *, until: datetime | None) -> None:
    """Asks the thread's active run to stop. Ends it at once if no worker has begun it. If the run waits for an
    approval, queues it again, so that a worker ends it. The stop covers the request and the messages that were sent up
    to `until`, or up to now if it is None. The caller must lock the thread."""
    run, thread_id = snapshot.active_run, snapshot.thread.thread_id
    if run is None:
        return
    if until is None:
        of_thread = select(func.max(thread_inputs.c.sent_at)).where(thread_inputs.c.thread_id == thread_id)
        until = connection.execute(of_thread).scalar_one()
    until = max(filter(None, (until, run.requested_at)), default=run.created_at)
    connection.execute(update(runs).where(runs.c.run_id == run.run_id).values(stop_requested=True, stopped_until=until))
    if run.status == "waiting" and snapshot.open_ask is not None:
        resume_run(connection, snapshot.open_ask, thread_id, answer=None, person=None)
    if is_unstarted(run):
        _keep_unread_inputs(connection, run, until=until)
        end_unstarted_run(connection, run, message="Stopped before it began.")


def is_unstarted(run: Run) -> bool:
    return run.status == "queued" and run.attempt == 0


def ask_if_still_wanted(connection: Connection, run: Run) -> None:
    """Ends a queued run with a question instead of working on its request, which goes to the history."""
    question = STILL_WANTED
    asked = with_token_count(
        Message(
            type="assistant",
            content={"role": "assistant", "content": question.text},
            is_llm_message=True,
            thread_id=run.thread_id,
            run_id=run.run_id,
        )
    )
    _keep_unread_inputs(connection, run, asked)
    _insert_end(connection, run, RunFinished(status="completed", finish_reason="agent_terminated", reply=question))
    lease = Lease(thread_id=run.thread_id, run_id=run.run_id, worker_id="", fence=0, attempt=0)
    body: JsonObject = {"text": question.text, "options": list(question.options)}
    ending = RunResult(
        status="completed",
        finish_reason="agent_terminated",
        reply=question,
        deliveries=(DeliveryDraft(slot="ask", body=body),),
    )
    end_run(connection, lease, ending)


def _keep_unread_inputs(connection: Connection, run: Run, *others: Message, until: datetime | None = None) -> None:
    """Adds the unread inputs that were sent up to `until`, and the other messages, to the history of a run that no
    worker executes."""
    waiting = (thread_inputs.c.thread_id == run.thread_id) & thread_inputs.c.taken_by.is_(None)
    if until is not None:
        waiting &= thread_inputs.c.sent_at <= until
    rows = connection.execute(select(thread_inputs).where(waiting).order_by(thread_inputs.c.position)).mappings()
    kept = [*(build_unread_message(input_from_row(row), run.run_id) for row in rows), *others]
    connection.execute(update(thread_inputs).where(waiting).values(taken_by=run.run_id))
    of_thread = threads.c.thread_id == run.thread_id
    first = connection.execute(select(threads.c.next_sequence).where(of_thread)).scalar_one()
    for sequence, message in enumerate(kept, first):
        connection.execute(messages.insert(), message_to_row(message, sequence))
    connection.execute(update(threads).where(of_thread).values(next_sequence=first + len(kept)))


def end_unstarted_run(connection: Connection, run: Run, *, message: str = "") -> None:
    """Marks a queued run that no worker has claimed as stopped. Unread inputs still lead to another run."""
    connection.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(status="stopped", finish_reason="stopped", finished_at=datetime.now(UTC))
    )
    _insert_end(connection, run, RunFinished(status="stopped", finish_reason="stopped", message=message))
    touch_thread(connection, run.thread_id, state="idle")
    _queue_follower(connection, run.thread_id, run.agent_id)


def _insert_end(connection: Connection, run: Run, ended: RunFinished) -> None:
    """Inserts the only event of a run that no worker has claimed."""
    event = RunEvent(run_id=run.run_id, thread_id=run.thread_id, cursor=Cursor(0, 1), event=ended, message_id=new_id())
    connection.execute(run_events.insert(), event_to_row(event))


def close_ask(
    connection: Connection, ask: Ask, *, answer: str | None, person: Person | None, unanswered: Unanswered = "withdrawn"
) -> Ask:
    """Closes an open ask as answered, or as `unanswered` if `answer` is None, and marks its delivery as stale."""
    closed = (
        update(pending_asks)
        .where(pending_asks.c.ask_id == ask.ask_id)
        .values(
            state=unanswered if answer is None else "answered",
            answer=answer,
            answered_by_id=person.person_id if person else None,
            answered_by_name=person.name if person else None,
            answered_at=datetime.now(UTC),
        )
    )
    row = connection.execute(closed.returning(*pending_asks.c)).mappings().one()
    # the run of an approval continues, and keeps its status up to date itself
    # the rendering is locked first, in the order that deliveries are posted
    slots = ("ask", "status") if ask.kind == "question" else ("ask",)
    connection.execute(select(renderings.c.run_id).where(renderings.c.run_id == ask.run_id).with_for_update())
    of_ask = (deliveries.c.run_id == ask.run_id) & deliveries.c.slot.in_(slots)
    connection.execute(
        update(deliveries).where(of_ask, deliveries.c.state.in_(("pending", "attempting"))).values(is_outdated=True)
    )
    sent = connection.execute(update(deliveries).where(of_ask, deliveries.c.state == "delivered").values(state="stale"))
    if sent.rowcount:
        connection.execute(update(renderings).where(renderings.c.run_id == ask.run_id).values(is_open=True))
    return ask_from_row(row)


def resume_run(
    connection: Connection,
    ask: Ask,
    thread_id: str,
    *,
    answer: str | None,
    person: Person | None,
    unanswered: Unanswered = "withdrawn",
) -> Ask:
    """Queues the waiting run again, with or without an answer."""
    ended = close_ask(connection, ask, answer=answer, person=person, unanswered=unanswered)
    connection.execute(
        update(runs)
        .where(runs.c.run_id == ask.run_id, runs.c.status == "waiting")
        .values(status="queued", deaths=0, requeued_at=datetime.now(UTC))
    )
    touch_thread(connection, thread_id, state="running")
    return ended


_END = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("run"))
    .values(
        status=bindparam("new_status"),
        finish_reason=bindparam("reason"),
        error=bindparam("new_error"),
        finished_at=bindparam("now"),
    )
)
_FREE = CompiledStatement(
    update(leases).where(leases.c.thread_id == bindparam("thread")).values(run_id=None, worker_id=None)
)
_INPUT_OF_USER = CompiledStatement(
    select(thread_inputs.c.input_id)
    .where(
        thread_inputs.c.thread_id == bindparam("thread"),
        thread_inputs.c.taken_by == bindparam("run"),
        thread_inputs.c.author_id.not_like(f"{APP_PREFIX}%"),
        thread_inputs.c.dedupe_key.not_like(f"{FIRING_KEY}%"),
    )
    .limit(1)
)
_ADD_DELIVERIES = CompiledStatement(partial(insert_ignoring_conflicts, deliveries))


def end_run(connection: Connection, lease: Lease, ending: RunResult) -> RunEnd:
    """Ends the run and frees its lease, whose row is locked."""
    ended = {
        "run": lease.run_id,
        "new_status": ending.status,
        "reason": ending.finish_reason,
        "new_error": ending.error,
        "now": datetime.now(UTC),
    }
    _END.execute(connection, ended)
    _FREE.execute(connection, {"thread": lease.thread_id})
    question = ending.reply if ending.reply is not None and ending.reply.kind in ("ask", "takeover") else None
    # a question stays open while only programs write
    if is_passed := question is not None or _has_users_input(connection, lease):
        withdraw_ask_of_thread(connection, lease.thread_id)
    ask_id = None
    if question is not None:
        ask_id = _insert_ask(connection, lease, question.parts[1], question.options)
    insert_deliveries(connection, lease.run_id, ending.deliveries, ask_id=ask_id)
    is_waiting = ask_id is not None or (not is_passed and read_open_ask(connection, lease.thread_id) is not None)
    touch_thread(connection, lease.thread_id, state="waiting" if is_waiting else "idle")
    agent = select(runs.c.agent_id).where(runs.c.run_id == lease.run_id)
    return _queue_follower(connection, lease.thread_id, connection.execute(agent).scalar_one())


def _has_users_input(connection: Connection, lease: Lease) -> bool:
    """Returns whether the run has read something that a user wrote, and not only automatic messages."""
    values = {"thread": lease.thread_id, "run": lease.run_id}
    return _INPUT_OF_USER.fetch_first(connection, values) is not None


def insert_deliveries(
    connection: Connection, run_id: str, drafts: tuple[DeliveryDraft, ...], *, ask_id: str | None = None
) -> None:
    """Inserts the drafts, except where the run already has a delivery with the same slot and ordinal. The body of a
    question gets its `ask_id`."""
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
        _ADD_DELIVERIES.execute(connection, *rows)


def withdraw_ask_of_thread(connection: Connection, thread_id: str) -> None:
    """Withdraws the thread's open ask, if any. Users ignored it and wrote something else, a later run asks, or the
    thread is unbound."""
    ask = read_open_ask(connection, thread_id)
    if ask is not None:
        close_ask(connection, ask, answer=None, person=None)


def _insert_ask(connection: Connection, lease: Lease, text: str, options: Sequence[str], **others: str) -> str:
    ask_id = new_id()
    connection.execute(
        pending_asks.insert(),
        {
            "ask_id": ask_id,
            "thread_id": lease.thread_id,
            "number": _next_number(_ASK_NUMBER, connection, lease.thread_id),
            "run_id": lease.run_id,
            "text": text,
            "options": list(options),
            "state": "open",
            "created_at": datetime.now(UTC),
            **others,
        },
    )
    return ask_id


def _queue_follower(connection: Connection, thread_id: str, agent_id: str | None) -> RunEnd:
    """Queues a run of the ended run's agent for inputs that the ended run did not read."""
    waiting = read_next_input(connection, thread_id)
    thread = read_thread(connection, thread_id) if waiting else None
    if waiting is None or thread is None:
        return RunEnd()
    follower = insert_queued_run(
        connection,
        thread,
        waiting.author,
        waiting.message_ref,
        agent_id=agent_id,
        attention=waiting.attention,
        requested_at=waiting.sent_at,
    )
    return RunEnd(follower.run_id)


EXPIRED_AT_ONCE_MAX = 100
_APPROVALS = select(pending_asks).where(pending_asks.c.kind == "approval")


def suspend_run(connection: Connection, lease: Lease, approval: Approval) -> None:
    """Frees the lease, whose row is locked, and inserts the question as an ask and a delivery. An older question is
    withdrawn, because a thread has only one."""
    withdraw_ask_of_thread(connection, lease.thread_id)
    asked = select(func.count()).where(pending_asks.c.run_id == lease.run_id)
    ordinal = 1 + connection.execute(asked).scalar_one()
    about = {"kind": "approval", "subject": approval.subject}
    ask_id = _insert_ask(connection, lease, approval.text, approval.options, **about)
    body: JsonObject = {"text": approval.card}
    if approval.commands:
        body["commands"] = {**approval.commands}
    if approval.file_text:
        body |= {"file_name": approval.file_name, "file_text": approval.file_text}
    insert_deliveries(connection, lease.run_id, (DeliveryDraft(slot="ask", ordinal=ordinal, body=body),), ask_id=ask_id)
    connection.execute(update(runs).where(runs.c.run_id == lease.run_id).values(status="waiting"))
    _FREE.execute(connection, {"thread": lease.thread_id})
    touch_thread(connection, lease.thread_id, state="waiting")
    stopped = select(runs.c.stop_requested).where(runs.c.run_id == lease.run_id)
    if connection.execute(stopped).scalar_one():
        # a stop was requested first: withdraw the question and queue the run, so that a worker ends it
        asked = connection.execute(select(pending_asks).where(pending_asks.c.ask_id == ask_id))
        resume_run(connection, ask_from_row(asked.mappings().one()), lease.thread_id, answer=None, person=None)


def read_newest_approval(connection: Connection, run_id: str) -> Ask | None:
    statement = _APPROVALS.where(pending_asks.c.run_id == run_id)
    row = connection.execute(statement.order_by(pending_asks.c.number.desc())).mappings().first()
    return ask_from_row(row) if row else None


class SqlAsks(Store):
    """`core.stores.Asks`."""

    @reads
    def find_ask(self, connection: Connection, ask_id: str) -> Ask | None:
        return _read_ask(connection, pending_asks.c.ask_id == ask_id)

    @reads
    def ask_of_run(self, connection: Connection, run_id: str) -> Ask | None:
        return _read_ask(connection, pending_asks.c.run_id == run_id)

    @reads
    def asks_of_run(self, connection: Connection, run_id: str) -> tuple[Ask, ...]:
        statement = select(pending_asks).where(pending_asks.c.run_id == run_id).order_by(pending_asks.c.number)
        return tuple(map(ask_from_row, connection.execute(statement).mappings().all()))

    @writes(Failpoint("storage.expire_approvals"))
    def expire_approvals(self, connection: Connection, *, older_than_hours: float) -> tuple[str, ...]:
        """Expires approvals that have been open for that long, and queues their runs, so that a worker ends them.
        Returns the run ids."""
        asked_before = datetime.now(UTC) - timedelta(hours=older_than_hours)
        old = _APPROVALS.where(pending_asks.c.state == "open", pending_asks.c.created_at < asked_before).order_by(
            pending_asks.c.thread_id
        )
        found = connection.execute(old.limit(EXPIRED_AT_ONCE_MAX)).mappings().all()
        expired: list[str] = []
        for row in found:
            lock_thread(connection, row["thread_id"])
            ask = read_open_ask(connection, row["thread_id"])
            if ask is not None and ask.ask_id == row["ask_id"]:
                resume_run(connection, ask, row["thread_id"], answer=None, person=None, unanswered="expired")
                expired.append(ask.run_id)
        return tuple(expired)


def _read_ask(connection: Connection, condition: ColumnElement[bool]) -> Ask | None:
    newest = select(pending_asks).where(condition).order_by(pending_asks.c.number.desc())
    row = connection.execute(newest).mappings().first()
    if row is None:
        return None
    written = (
        select(thread_inputs.c.input_id)
        .join(runs, runs.c.thread_id == thread_inputs.c.thread_id)
        .where(
            runs.c.run_id == row["run_id"],
            thread_inputs.c.kind == "message",
            thread_inputs.c.text == row["answer"],
            thread_inputs.c.author_id == row["answered_by_id"],
        )
        .limit(1)
    )
    is_written = row["answer"] is not None and connection.execute(written).first() is not None
    return replace(ask_from_row(row), is_written_in_thread=is_written)
