"""The journal of a run: reads and writes of the worker that holds its lease, one transaction per entry."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, false, func, select, update

from core.domain.approval import Approval
from core.domain.budget import PlannedCall, Reservation
from core.domain.errors import LeaseLost
from core.domain.events import TurnFinished
from core.domain.messages import Message
from core.domain.threads import Ask, Lease, ThreadInput, ToolCallRecord
from core.failpoints import Failpoint
from core.stores import NOTHING_NEW, JournalEntry, RunEnd, RunResult
from storage.sql.columns import SanitizedText
from storage.sql.database import ResultT, Store, Work, read_all, reads, writes
from storage.sql.rows import event_to_row, message_to_row, to_row, tool_call_from_row
from storage.sql.statements import CompiledStatement, insert_ignoring_conflicts
from storage.sql.stores.agents import set_run_agent
from storage.sql.stores.conversations import read_unread_inputs
from storage.sql.stores.run_transitions import end_run, insert_deliveries, read_newest_approval, suspend_run
from storage.sql.stores.talk import mark_talk_read
from storage.sql.stores.usage import BudgetPlace, add_usage, reserve_call
from storage.sql.tables import leases, messages, renderings, run_events, runs, thread_inputs, threads, tool_calls

_WRITE = Failpoint("storage.write")
RUNS_SWEPT_AT_ONCE_MAX = 100

_HELD = (
    select(
        leases.c.fence,
        leases.c.run_id,
        threads.c.next_sequence,
        threads.c.platform,
        threads.c.workspace_id,
        threads.c.channel_id,
        runs.c.requester_id,
        runs.c.attempt,
    )
    .select_from(threads)
    .join(leases, leases.c.thread_id == threads.c.thread_id)
    .join(runs, runs.c.run_id == leases.c.run_id)
    .where(threads.c.thread_id == bindparam("thread"))
)
_HELD_UNLOCKED = CompiledStatement(_HELD)
_HELD_LOCKED = CompiledStatement(_HELD.with_for_update(of=[threads, leases], key_share=True))
_ADVANCE = CompiledStatement(
    update(threads).where(threads.c.thread_id == bindparam("thread")).values(next_sequence=bindparam("next"))
)
_COME_FURTHER = CompiledStatement(
    update(runs).where(runs.c.run_id == bindparam("run")).values(deaths=bindparam("now_deaths"))
)
_ADD_MESSAGES = CompiledStatement(messages.insert())
_ADD_EVENTS = CompiledStatement(run_events.insert())
_SETTLE = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("run"))
    .values(
        model=func.coalesce(bindparam("answered", type_=SanitizedText()), runs.c.model),
        reserved_tokens=0,
        reserved_microdollars=0,
    )
)
_START_CALLS = CompiledStatement(partial(insert_ignoring_conflicts, tool_calls))
_END_CALLS = CompiledStatement(
    update(tool_calls)
    .where(
        tool_calls.c.run_id == bindparam("of_run"),
        tool_calls.c.turn_id == bindparam("of_turn"),
        tool_calls.c.index == bindparam("of_index"),
    )
    .values(state=bindparam("now"), result=bindparam("outcome"), metadata=bindparam("details"))
)
_WAITING_IDS = CompiledStatement(
    select(thread_inputs.c.input_id).where(
        thread_inputs.c.thread_id == bindparam("thread"), thread_inputs.c.taken_by.is_(None)
    )
)
_TAKE = CompiledStatement(
    update(thread_inputs)
    .where(thread_inputs.c.thread_id == bindparam("thread"), thread_inputs.c.input_id == bindparam("taken"))
    .values(taken_by=bindparam("taker"))
)


class _Held(NamedTuple):
    """Columns of lease, thread and run that a write needs, in the order of `_HELD`."""

    fence: int
    run_id: str | None
    next_sequence: int
    platform: str
    workspace_id: str
    channel_id: str
    requester_id: str | None
    attempt: int

    @property
    def budget_place(self) -> BudgetPlace:
        return BudgetPlace(self.platform, self.workspace_id, self.channel_id, self.requester_id)


class SqlRunJournal(Store):
    """`core.stores.RunJournal`."""

    async def read_inputs(self, lease: Lease, entry: JournalEntry = NOTHING_NEW) -> tuple[ThreadInput, ...]:
        is_new = entry != NOTHING_NEW

        def work(connection: Connection) -> tuple[ThreadInput, ...]:
            held = _hold(connection, lease, locked=is_new)
            if is_new:
                _add(connection, lease, entry, held)
            return _waiting(connection, lease)

        if is_new:
            return await self._write(entry, work)
        return await self.database.read(work)

    async def begin_turn(
        self, lease: Lease, entry: JournalEntry, call: PlannedCall
    ) -> tuple[tuple[ThreadInput, ...], Reservation]:
        def work(connection: Connection) -> tuple[tuple[ThreadInput, ...], Reservation] | None:
            held = _hold(connection, lease)
            _add(connection, lease, entry, held)
            if held.attempt != lease.attempt:
                return None
            # last, because PostgreSQL holds the budget's lock until the commit
            inputs = _waiting(connection, lease)
            return inputs, reserve_call(connection, lease.run_id, held.budget_place, call)

        begun = await self._write(entry, work)
        if begun is None:
            raise LeaseLost(f"run {lease.run_id}: `forget me` has changed its history, which has to be read again")
        return begun

    async def write(self, lease: Lease, entry: JournalEntry) -> None:
        def work(connection: Connection) -> None:
            _add(connection, lease, entry, _hold(connection, lease))

        await self._write(entry, work)

    async def _write(self, entry: JournalEntry, work: Work[ResultT]) -> ResultT:
        """Writes an entry. If it starts a tool call, waits until the entry is on disk, so that the call is not repeated
        after a power cut. The rest of a turn may be repeated."""
        return await self.database.write(_WRITE, work, is_durable=bool(entry.started))

    @writes(Failpoint("storage.finish"))
    def finish(self, connection: Connection, lease: Lease, entry: JournalEntry, ending: RunResult) -> RunEnd | None:
        held = _hold(connection, lease)
        if ending.yields_to_input:
            waiting = _WAITING_IDS.fetch_tuples(connection, {"thread": lease.thread_id})
            if any(input_id not in entry.taken_input_ids for (input_id,) in waiting):
                return None
        _add(connection, lease, entry, held)
        return end_run(connection, lease, ending)

    @writes(Failpoint("storage.suspend"))
    def suspend_run(self, connection: Connection, lease: Lease, entry: JournalEntry, approval: Approval) -> None:
        _add(connection, lease, entry, _hold(connection, lease))
        suspend_run(connection, lease, approval)

    @reads
    def find_approval(self, connection: Connection, run_id: str) -> Ask | None:
        return read_newest_approval(connection, run_id)

    async def tool_call_records(self, run_id: str) -> tuple[ToolCallRecord, ...]:
        statement = select(tool_calls).where(tool_calls.c.run_id == run_id).order_by(tool_calls.c.position)
        return await read_all(self.database, statement, tool_call_from_row)

    @writes(Failpoint("storage.sweep_events"))
    def sweep_events(
        self, connection: Connection, *, older_than_hours: float = 24, runs_max: int = RUNS_SWEPT_AT_ONCE_MAX
    ) -> int:
        """Deletes the events of some runs that ended that long ago and whose deliveries are complete. Returns how many
        events were deleted, 0 if none are left."""
        some = (  # in primary key order, which follows time, so that only the start of the index is read
            select(run_events.c.run_id)
            .distinct()
            .join(runs, runs.c.run_id == run_events.c.run_id)
            .outerjoin(renderings, renderings.c.run_id == runs.c.run_id)
            .where(runs.c.finished_at < datetime.now(UTC) - timedelta(hours=older_than_hours))
            .where(func.coalesce(renderings.c.is_open, false()).is_(False))
            .order_by(run_events.c.run_id)
            .limit(runs_max)
        )
        return connection.execute(delete(run_events).where(run_events.c.run_id.in_(some))).rowcount


def _hold(connection: Connection, lease: Lease, *, locked: bool = True) -> _Held:
    """Reads the lease with its thread and run, and locks them if `locked` is true. Raises LeaseLost."""
    statement = _HELD_LOCKED if locked else _HELD_UNLOCKED
    for row in statement.fetch_tuples(connection, {"thread": lease.thread_id}):
        held = _Held(*row)
        if (held.fence, held.run_id) == (lease.fence, lease.run_id):
            return held
    raise LeaseLost(f"run {lease.run_id}: fence {lease.fence} is not the newest")


def _waiting(connection: Connection, lease: Lease) -> tuple[ThreadInput, ...]:
    """Returns the waiting inputs. Selects ids first, because inputs rarely wait and whole rows are expensive."""
    is_empty = not _WAITING_IDS.fetch_tuples(connection, {"thread": lease.thread_id})
    return () if is_empty else read_unread_inputs(connection, lease.thread_id)


def _add(connection: Connection, lease: Lease, entry: JournalEntry, held: _Held) -> None:
    if entry.taken_input_ids:
        waiting = {input_id for (input_id,) in _WAITING_IDS.fetch_tuples(connection, {"thread": lease.thread_id})}
        if not waiting.issuperset(entry.taken_input_ids):
            raise LeaseLost(f"run {lease.run_id}: a message was changed or erased while it was read")
    if entry.messages or entry.sandbox_id is not None:
        _add_messages(connection, lease, entry.messages, held.next_sequence, entry.sandbox_id)
    if entry.agent is not None:
        set_run_agent(connection, lease, entry.agent)
    if entry.started:
        _START_CALLS.execute(connection, *map(to_row, entry.started))
    if entry.finished:
        rows = [
            {
                "of_run": call.run_id,
                "of_turn": call.turn_id,
                "of_index": call.index,
                "now": call.state,
                "outcome": call.result,
                "details": call.metadata,
            }
            for call in entry.finished
        ]
        _END_CALLS.execute(connection, *rows)
    if entry.events:
        _ADD_EVENTS.execute(connection, *map(event_to_row, entry.events))
        finished = [event.event for event in entry.events if isinstance(event.event, TurnFinished)]
        if lease.deaths and not all(event.is_mended for event in finished):  # not those of an earlier attempt
            _COME_FURTHER.execute(connection, {"run": lease.run_id, "now_deaths": 0})
    if entry.deliveries:
        insert_deliveries(connection, lease.run_id, entry.deliveries)
    if entry.usage:
        # model calls outside turns are booked without a turn id
        answered = next((usage.model for usage in reversed(entry.usage) if usage.turn_id), None)
        # before the daily sums, because the erasure of a person locks the rows in this order, too
        _SETTLE.execute(connection, {"run": lease.run_id, "answered": answered})
        add_usage(connection, entry.usage, held.budget_place, {"thread_id": lease.thread_id, "run_id": lease.run_id})
    if entry.taken_input_ids:
        this = {"thread": lease.thread_id, "taker": lease.run_id}
        _TAKE.execute(connection, *({**this, "taken": one} for one in entry.taken_input_ids))
    if entry.heard_refs:
        mark_talk_read(connection, lease.thread_id, lease.run_id, entry.heard_refs)


def _add_messages(
    connection: Connection, lease: Lease, added: Sequence[Message], first: int, sandbox_id: str | None
) -> None:
    if added:
        rows = [message_to_row(message, number) for number, message in enumerate(added, first)]
        _ADD_MESSAGES.execute(connection, *rows)
        _ADVANCE.execute(connection, {"thread": lease.thread_id, "next": first + len(added)})
    if sandbox_id is not None:
        connection.execute(update(threads).where(threads.c.thread_id == lease.thread_id).values(sandbox_id=sandbox_id))
