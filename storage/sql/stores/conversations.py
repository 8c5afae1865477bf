"""Threads with their messages, runs and events, and the reads and locks of threads that other stores share."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    desc,
    func,
    literal_column,
    or_,
    select,
    tuple_,
    union,
    update,
)

from core.context.request_tail import PICTURES_MAX
from core.domain.approval import grants_of_always
from core.domain.events import Cursor, RunEvent
from core.domain.ids import new_id
from core.domain.messages import Message, MessageType
from core.domain.threads import (
    Address,
    Ask,
    ChatMessage,
    ListedThread,
    Person,
    Position,
    Run,
    Selection,
    Thread,
    ThreadInput,
    ThreadSnapshot,
    Usage,
)
from core.failpoints import Failpoint
from core.stores import ErasedCounts, LoadedRun
from storage.sql.database import Store, read_all, reads, writes
from storage.sql.rows import (
    Row,
    address_parameters,
    ask_from_row,
    event_from_row,
    from_row,
    input_from_row,
    listed_thread_from_row,
    message_from_row,
    run_from_row,
    schedule_from_row,
    thread_from_row,
    thread_to_row,
)
from storage.sql.statements import CompiledStatement, place_conditions, position_tuple
from storage.sql.stores.audit import record_in_thread
from storage.sql.stores.erasure import erase_messages, erase_rows, erase_thread, erasure_conditions, unbind_inactive
from storage.sql.stores.talk import read_request, read_unread_talk
from storage.sql.tables import (
    audit_entries,
    deliveries,
    messages,
    pending_asks,
    run_events,
    runs,
    schedules,
    thread_inputs,
    threads,
    usages,
)

ACTIVE = ("queued", "running")
"""Statuses of runs that a worker may claim or has claimed."""
UNENDED = (*ACTIVE, "waiting")

_WITH_ID = select(threads).where(threads.c.thread_id == bindparam("thread"))
_BOUND_TO = select(threads).where(
    threads.c.platform == bindparam("platform"),
    threads.c.workspace_id == bindparam("workspace"),
    threads.c.channel_id == bindparam("channel"),
    threads.c.thread_key == bindparam("key"),
    threads.c.unbound_at.is_(None),
)
_OF_RUN = select(threads).where(
    threads.c.thread_id == select(runs.c.thread_id).where(runs.c.run_id == bindparam("run")).scalar_subquery()
)
_READ, _READ_BOUND = CompiledStatement(_WITH_ID), CompiledStatement(_BOUND_TO)
_LOCK, _LOCK_BOUND, _LOCK_OF_RUN = (
    CompiledStatement(statement.with_for_update(key_share=True)) for statement in (_WITH_ID, _BOUND_TO, _OF_RUN)
)
_NEWEST_RUN = CompiledStatement(
    select(runs).where(runs.c.thread_id == bindparam("thread")).order_by(runs.c.number.desc()).limit(1)
)
_OPEN_ASK = CompiledStatement(
    select(pending_asks).where(pending_asks.c.thread_id == bindparam("thread"), pending_asks.c.state == "open")
)
_PLACE_OF_MESSAGE = CompiledStatement(
    select(threads.c.thread_key)
    .join(runs, runs.c.thread_id == threads.c.thread_id)
    .outerjoin(deliveries, and_(deliveries.c.run_id == runs.c.run_id, deliveries.c.slot == "ask"))
    .where(
        threads.c.platform == bindparam("platform"),
        threads.c.workspace_id == bindparam("workspace"),
        threads.c.channel_id == bindparam("channel"),
        runs.c.status.in_([literal_column(f"'{status}'") for status in UNENDED]),
        or_(runs.c.request_ref == bindparam("ref"), deliveries.c.message_ref == bindparam("ref")),
    )
    .limit(1)
)
_ADD_THREAD = CompiledStatement(threads.insert())
_UNREAD_INPUTS = CompiledStatement(
    select(thread_inputs)
    .where(thread_inputs.c.thread_id == bindparam("thread"), thread_inputs.c.taken_by.is_(None))
    .order_by(thread_inputs.c.position)
)


def insert_thread(connection: Connection, address: Address, *, title: str = "", begins_with: str = "") -> Thread:
    """`begins_with` is the id of the thread's first message. If it is also the key of the chat thread, nobody has
    written there before."""
    now = datetime.now(UTC)
    thread = Thread(
        thread_id=new_id(),
        address=address,
        state="idle",
        title=title,
        earlier_authors={} if begins_with and begins_with == address.thread_key else None,
        created_at=now,
        last_activity_at=now,
    )
    _ADD_THREAD.execute(connection, thread_to_row(thread))
    return thread


def lock_thread(connection: Connection, thread_id: str) -> Thread | None:
    """Reads and locks a thread. Every transaction that changes a thread locks its row first, which prevents
    deadlocks."""
    return _thread(_LOCK.fetch_first(connection, {"thread": thread_id}))


def lock_thread_of_run(connection: Connection, run_id: str) -> Thread | None:
    """Like `lock_thread`, by run id. Returns None if there is no such run."""
    return _thread(_LOCK_OF_RUN.fetch_first(connection, {"run": run_id}))


def lock_thread_at(connection: Connection, address: Address) -> Thread | None:
    """Like `lock_thread`, for the thread that the address is bound to."""
    return _thread(_LOCK_BOUND.fetch_first(connection, address_parameters(address)))


def read_thread(connection: Connection, thread_id: str) -> Thread | None:
    return _thread(_READ.fetch_first(connection, {"thread": thread_id}))


def read_thread_at(connection: Connection, address: Address) -> Thread | None:
    """Returns the thread that the address is bound to."""
    return _thread(_READ_BOUND.fetch_first(connection, address_parameters(address)))


def read_newest_run(connection: Connection, thread_id: str) -> Run | None:
    row = _NEWEST_RUN.fetch_first(connection, {"thread": thread_id})
    return run_from_row(row) if row else None


def read_open_ask(connection: Connection, thread_id: str) -> Ask | None:
    """Returns the open ask of the thread; there is at most one."""
    row = _OPEN_ASK.fetch_first(connection, {"thread": thread_id})
    return ask_from_row(row) if row else None


def read_unread_inputs(connection: Connection, thread_id: str) -> tuple[ThreadInput, ...]:
    """Returns the inputs that no run has read, in the order in which they are read."""
    return tuple(map(input_from_row, _UNREAD_INPUTS.fetch_rows(connection, {"thread": thread_id})))


def read_next_input(connection: Connection, thread_id: str) -> ThreadInput | None:
    """Returns the first input that no run has read."""
    return next(iter(read_unread_inputs(connection, thread_id)), None)


def read_snapshot(connection: Connection, thread: Thread) -> ThreadSnapshot:
    last_run = read_newest_run(connection, thread.thread_id)
    is_active = last_run is not None and last_run.status in UNENDED
    return ThreadSnapshot(
        thread=thread,
        active_run=last_run if is_active else None,
        last_run=last_run,
        open_ask=read_open_ask(connection, thread.thread_id),
    )


def _thread(row: Row | None) -> Thread | None:
    return thread_from_row(row) if row else None


_RENEW = Failpoint("storage.renew")
_NOTE_AUTHORS = Failpoint("storage.note_earlier_authors")
_FORGET = Failpoint("storage.forget")
_RUN = CompiledStatement(select(runs).where(runs.c.run_id == bindparam("of_run")))
_ANSWERED_APPROVALS = CompiledStatement(
    select(pending_asks).where(
        pending_asks.c.thread_id == bindparam("thread"),
        pending_asks.c.kind == "approval",
        pending_asks.c.state == "answered",
    )
)
_VISIBLE_SCHEDULES = CompiledStatement(
    select(schedules)
    .where(
        schedules.c.platform == bindparam("platform"),
        schedules.c.workspace_id == bindparam("workspace"),
        or_(schedules.c.channel_id == bindparam("channel"), schedules.c.owner_id == bindparam("owner")),
        schedules.c.state != "ended",
    )
    .order_by(schedules.c.armed_at.desc())
)


def _begun_after(moment: datetime) -> Select[tuple[str]]:
    """Selects the threads whose first request was sent after that time, by the platform's clock."""
    return select(runs.c.thread_id).where(runs.c.number == 1, runs.c.requested_at > moment)


def _newest_of(kind: MessageType, most: int) -> Select[tuple[int]]:
    """Returns a statement for the sequences of the newest messages of a type in the thread."""
    row = messages.alias()
    return (
        select(row.c.sequence)
        .where(row.c.thread_id == bindparam("thread"), row.c.type == kind)
        .order_by(row.c.sequence.desc())
        .limit(most)
    )


_HISTORY = CompiledStatement(
    select(messages)
    .where(
        messages.c.thread_id == bindparam("thread"),
        or_(
            messages.c.is_llm_message,
            messages.c.sequence.in_(_newest_of("browser_state", 1)),
            messages.c.sequence.in_(_newest_of("image_context", PICTURES_MAX)),
        ),
    )
    .order_by(messages.c.sequence)
)


def _read_history(connection: Connection, thread_id: str) -> tuple[Message, ...]:
    return tuple(map(message_from_row, _HISTORY.fetch_rows(connection, {"thread": thread_id})))


def _refs_to_mark() -> Select[tuple[str]]:
    """Selects the messages that the run requested or has read, unless a later run of the thread was requested by the
    same message or has read it. Leaves out messages that may have been meant for other users."""
    this = select(runs.c.thread_id, runs.c.number).where(runs.c.run_id == bindparam("of_run"))
    run, other = this.cte(), runs.alias()
    requested = select(other.c.request_ref.label("ref"), other.c.number).join(run, run.c.thread_id == other.c.thread_id)
    read = (
        select(thread_inputs.c.message_ref, other.c.number)
        .join(run, run.c.thread_id == thread_inputs.c.thread_id)
        .join(other, other.c.run_id == thread_inputs.c.taken_by)
        .where(thread_inputs.c.attention != "unsure")
    )
    shown = union(requested, read).subquery()
    return (
        select(shown.c.ref)
        .where(shown.c.ref != "")
        .group_by(shown.c.ref)
        .having(func.max(shown.c.number) == select(run.c.number).scalar_subquery())
        .order_by(shown.c.ref)
    )


_REFS_TO_MARK = CompiledStatement(_refs_to_mark())
_IS_AFTER = (
    run_events.c.run_id == bindparam("of_run"),
    tuple_(run_events.c.attempt, run_events.c.n)
    > tuple_(bindparam("attempt", type_=Integer()), bindparam("n", type_=Integer())),
)
_EVENTS = CompiledStatement(select(run_events).where(*_IS_AFTER).order_by(run_events.c.attempt, run_events.c.n))
_EVENT_MESSAGES = CompiledStatement(
    select(messages)
    .join(run_events, run_events.c.message_id == messages.c.message_id)
    .where(*_IS_AFTER, run_events.c.body.is_(None))
)


class SqlConversations(Store):
    """`core.stores.Conversations`."""

    @reads
    def find(self, connection: Connection, address: Address) -> ThreadSnapshot | None:
        thread = read_thread_at(connection, address)
        return read_snapshot(connection, thread) if thread else None

    @reads
    def find_stopper_name(self, connection: Connection, address: Address, run_id: str) -> str:
        row = audit_entries.c
        newest = (
            select(row.actor_name)
            .where(row.platform == address.platform, row.workspace_id == address.workspace_id)
            .where(row.entry_id > run_id, row.run_id == run_id, row.action == "stop_requested")  # ids grow with time
            .order_by(row.entry_id.desc())
            .limit(1)
        )
        return connection.execute(newest).scalar() or ""

    async def has_thread(self, address: Address) -> bool:
        return bool(await self.database.read_statement(_READ_BOUND, address_parameters(address)))

    async def find_run_address(self, channel: Address, message_ref: str) -> Address | None:
        place = {**address_parameters(channel), "ref": message_ref}
        found = await self.database.read_statement(_PLACE_OF_MESSAGE, place)
        return replace(channel, thread_key=str(found[0]["thread_key"])) if found else None

    @reads
    def thread_ids(
        self, connection: Connection, address: Address, *, begun_by: datetime | None = None
    ) -> tuple[str, ...]:
        place = [threads.c[name] == value for name, value in asdict(address).items()]
        if begun_by is not None:
            place.append(threads.c.thread_id.not_in(_begun_after(begun_by)))
        found = select(threads.c.thread_id).where(*place).order_by(threads.c.thread_id.desc())
        return tuple(connection.execute(found).scalars())

    @reads
    def snapshot(self, connection: Connection, thread_id: str) -> ThreadSnapshot | None:
        thread = read_thread(connection, thread_id)
        return read_snapshot(connection, thread) if thread else None

    @writes(Failpoint("storage.create_thread"))
    def create(self, connection: Connection, address: Address, *, title: str = "") -> Thread:
        """Returns the existing thread if the address is bound."""
        return lock_thread_at(connection, address) or insert_thread(connection, address, title=title)

    @writes(_RENEW)
    def unbind(
        self,
        connection: Connection,
        place: Address | str,
        *,
        by: Person | None = None,
        begun_by: datetime | None = None,
    ) -> bool:
        # here, because that module imports this one
        from storage.sql.stores.run_transitions import withdraw_ask_of_thread

        thread = lock_thread(connection, place) if isinstance(place, str) else lock_thread_at(connection, place)
        if begun_by is not None and thread is not None:
            is_newer = _begun_after(begun_by).where(runs.c.thread_id == thread.thread_id)
            thread = None if connection.execute(is_newer).first() else thread
        if thread is not None:
            if read_snapshot(connection, thread).active_run is not None:
                return False
            withdraw_ask_of_thread(connection, thread.thread_id)
            unbound = update(threads).where(threads.c.thread_id == thread.thread_id)
            connection.execute(unbound.values(unbound_at=datetime.now(UTC)))
            record_in_thread(connection, "conversation_renewed", thread, by)
        return True

    @writes(_NOTE_AUTHORS)
    def note_earlier_authors(self, connection: Connection, thread_id: str, authors: Mapping[str, str]) -> None:
        this = update(threads).where(threads.c.thread_id == thread_id)
        connection.execute(this.values(earlier_authors=dict(authors)))

    @writes(_NOTE_AUTHORS)
    def note_author(self, connection: Connection, address: Address, person: Person) -> None:
        thread = lock_thread_at(connection, address)
        known = thread.earlier_authors if thread else None
        if thread is None or known is None or person.person_id in known:
            return
        this = update(threads).where(threads.c.thread_id == thread.thread_id)
        connection.execute(this.values(earlier_authors={**known, person.person_id: person.name}))

    @writes(_FORGET)
    def delete_thread(self, connection: Connection, thread_id: str, *, by: Person | None = None) -> None:
        thread = lock_thread(connection, thread_id)
        if thread is not None:
            if by is not None:  # retention deletes an old conversation, but not its schedules
                connection.execute(delete(schedules).where(schedules.c.thread_id == thread_id))
            erase_thread(connection, thread_id)
            record_in_thread(connection, "conversation_forgotten", thread, by)

    @reads
    def unended_runs_of_person(self, connection: Connection, address: Address, person_id: str) -> tuple[str, ...]:
        found = (
            select(runs.c.run_id)
            .join(threads, threads.c.thread_id == runs.c.thread_id)
            .where(
                runs.c.requester_id == person_id,
                runs.c.status.in_(UNENDED),
                *erasure_conditions(address.platform, address.workspace_id),
            )
        )
        return tuple(connection.execute(found).scalars())

    async def erase_person(self, address: Address, person_id: str) -> ErasedCounts:
        place = address.platform, address.workspace_id, person_id
        # messages last, because a run may turn inputs into messages meanwhile
        counts = await self.database.write(_FORGET, lambda c: erase_rows(c, *place))
        after, changed = "", 0
        while True:
            batch, after = await self.database.write(
                _FORGET, lambda c, start=after: erase_messages(c, *place, after=start)
            )
            changed += batch
            if not after:
                return replace(counts, messages=max(counts.messages, changed))

    @writes(_RENEW)
    def unbind_inactive_threads(self, connection: Connection, before: datetime, *, limit: int) -> tuple[str, ...]:
        return unbind_inactive(connection, before, limit)

    async def messages(
        self, thread_id: str, *, after_sequence: int = 0, limit: int | None = None
    ) -> tuple[Message, ...]:
        statement = (
            select(messages)
            .where(messages.c.thread_id == thread_id, messages.c.sequence > after_sequence)
            .order_by(messages.c.sequence)
            .limit(limit)
        )
        return await read_all(self.database, statement, message_from_row)

    async def llm_messages(self, thread_id: str) -> tuple[Message, ...]:
        statement = (
            select(messages)
            .where(messages.c.thread_id == thread_id, messages.c.is_llm_message)
            .order_by(messages.c.sequence)
        )
        return await read_all(self.database, statement, message_from_row)

    @reads
    def history(self, connection: Connection, thread_id: str) -> tuple[Message, ...]:
        return _read_history(connection, thread_id)

    @reads
    def message(self, connection: Connection, thread_id: str, message_id: str) -> Message | None:
        statement = select(messages).where(messages.c.message_id == message_id, messages.c.thread_id == thread_id)
        row = connection.execute(statement).mappings().one_or_none()
        return message_from_row(row) if row else None

    async def run(self, run_id: str) -> Run | None:
        rows = await self.database.read_statement(_RUN, {"of_run": run_id})
        return run_from_row(rows[0]) if rows else None

    @reads
    def run_with_thread(self, connection: Connection, run_id: str) -> tuple[Run, Thread] | None:
        return read_run_with_thread(connection, run_id)

    @reads
    def load_run(self, connection: Connection, run_id: str) -> LoadedRun | None:
        found = read_run_with_thread(connection, run_id)
        if found is None:
            return None
        run, thread = found
        approvals = _ANSWERED_APPROVALS.fetch_rows(connection, {"thread": thread.thread_id})
        place = {**address_parameters(thread.address), "owner": run.requester.person_id if run.requester else ""}
        return LoadedRun(
            run=run,
            thread=thread,
            history=_read_history(connection, thread.thread_id),
            granted=frozenset[str]().union(*(grants_of_always(ask_from_row(row)) for row in approvals)),
            schedules=tuple(map(schedule_from_row, _VISIBLE_SCHEDULES.fetch_rows(connection, place))),
        )

    async def unread_inputs(self, thread_id: str) -> tuple[ThreadInput, ...]:
        rows = await self.database.read_statement(_UNREAD_INPUTS, {"thread": thread_id})
        return tuple(map(input_from_row, rows))

    @reads
    def unread_talk(self, connection: Connection, thread_id: str, before: datetime) -> tuple[ChatMessage, ...]:
        return read_unread_talk(connection, thread_id, before)

    async def message_refs_to_mark(self, run_id: str) -> tuple[str, ...]:
        rows = await self.database.read_statement(_REFS_TO_MARK, {"of_run": run_id})
        return tuple(row["ref"] for row in rows)

    async def runs(self, thread_id: str) -> tuple[Run, ...]:
        statement = select(runs).where(runs.c.thread_id == thread_id).order_by(runs.c.number)
        return await read_all(self.database, statement, run_from_row)

    async def newest_runs(self, thread_id: str, *, before: str | None = None, limit: int) -> tuple[Run, ...]:
        statement = select(runs).where(runs.c.thread_id == thread_id).order_by(runs.c.number.desc()).limit(limit)
        if before is not None:
            number = select(runs.c.number).where(runs.c.run_id == before, runs.c.thread_id == thread_id)
            statement = statement.where(runs.c.number < number.scalar_subquery())
        return await read_all(self.database, statement, run_from_row)

    async def newest_threads(
        self, selection: Selection, *, before: Position | None = None, limit: int
    ) -> tuple[ListedThread, ...]:
        def by_activity(rows: FromClause) -> tuple[ColumnElement[Any], ...]:
            return rows.c.last_activity_at, rows.c.thread_id

        chosen = place_conditions(threads, selection)
        if selection.person_id is not None:
            theirs = select(runs.c.thread_id).where(runs.c.requester_id == selection.person_id)
            chosen.append(threads.c.thread_id.in_(theirs))
        if before is not None:
            chosen.append(tuple_(*by_activity(threads)) < position_tuple(before))
        newest_first = map(desc, by_activity(threads))
        page = select(threads).where(*chosen).order_by(*newest_first).limit(limit).subquery()
        others = runs.alias()
        newest = select(func.max(others.c.number)).where(others.c.thread_id == page.c.thread_id).scalar_subquery()
        statement = (
            select(page, runs.c.run_id, runs.c.status)
            .select_from(page)
            .outerjoin(runs, and_(runs.c.thread_id == page.c.thread_id, runs.c.number == newest))
            .order_by(*map(desc, by_activity(page)))
        )
        return await read_all(self.database, statement, listed_thread_from_row)

    @reads
    def runs_of_person(
        self,
        connection: Connection,
        platform: str,
        workspace_id: str,
        person_id: str,
        *,
        limit: int,
        channel_id: str | None = None,
    ) -> tuple[tuple[Run, Thread, str], ...]:
        place = [threads.c.platform == platform, threads.c.workspace_id == workspace_id]
        place += [threads.c.channel_id == channel_id] if channel_id is not None else []
        newest = (
            select(runs)
            .join(threads, threads.c.thread_id == runs.c.thread_id)
            .where(*place, runs.c.requester_id == person_id)
            .order_by(runs.c.run_id.desc())
            .limit(limit)
        )
        return tuple(
            (run, thread, read_request(connection, run.thread_id, run.run_id))
            for run in map(run_from_row, connection.execute(newest).mappings().all())
            if (thread := read_thread(connection, run.thread_id))
        )

    @reads
    def usage(self, connection: Connection, *, thread_id: str | None = None, run_id: str | None = None) -> Usage:
        """Returns the sum over the thread or the run, or over everything if neither is given."""
        names = [field.name for field in fields(Usage) if field.name != "written_tokens"]
        sums = [func.coalesce(func.sum(usages.c[name]), 0).label(name) for name in names]
        statement = select(*sums)
        if thread_id is not None:
            statement = statement.where(usages.c.thread_id == thread_id)
        if run_id is not None:
            statement = statement.where(usages.c.run_id == run_id)
        return from_row(Usage, connection.execute(statement).mappings().one(), written_tokens=0)

    @reads
    def events(self, connection: Connection, run_id: str, *, after: Cursor | None = None) -> tuple[RunEvent, ...]:
        return _events(connection, run_id, after)

    @reads
    def events_so_far(self, connection: Connection, run_id: str, *, after: Cursor) -> tuple[tuple[RunEvent, ...], bool]:
        """Reads the run before its events: if the run is over, all of its events are stored."""
        row = _RUN.fetch_first(connection, {"of_run": run_id})
        is_over = row is None or row["status"] not in UNENDED
        return _events(connection, run_id, after), is_over


def read_run_with_thread(connection: Connection, run_id: str) -> tuple[Run, Thread] | None:
    row = _RUN.fetch_first(connection, {"of_run": run_id})
    thread = read_thread(connection, row["thread_id"]) if row else None
    return (run_from_row(row), thread) if row and thread else None


def _events(connection: Connection, run_id: str, after: Cursor | None) -> tuple[RunEvent, ...]:
    """Returns the run's events. Events about messages have no stored body; it is built from the message."""
    start = after or Cursor(-1, 0)
    wanted = {"of_run": run_id, "attempt": start.attempt, "n": start.n}
    found = {row["message_id"]: message_from_row(row) for row in _EVENT_MESSAGES.fetch_rows(connection, wanted)}
    return tuple(event_from_row(row, found.get(row["message_id"])) for row in _EVENTS.fetch_rows(connection, wanted))
