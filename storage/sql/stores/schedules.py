"""Schedules and their firings."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, func, select, tuple_, type_coerce, update
from sqlalchemy.types import NullType

from core.domain.ids import new_id
from core.domain.schedules import (
    EVENT_DAYS_KEPT,
    EVENT_LATE_SECONDS,
    EVENTS_PER_HOUR_MAX,
    FAILURES_MAX,
    FIRING_KEY,
    MISSED_KEY,
    NEVER,
    PROPOSAL_DAYS,
    DueSchedule,
    EventRefusal,
    Firing,
    FiringPlan,
    FiringState,
    Schedule,
    ScheduleLimits,
    TriggerEvent,
)
from core.domain.threads import Address, Person, Position, Run, Selection
from core.failpoints import Failpoint
from storage.sql.columns import DatabaseNow
from storage.sql.database import Store, reads, writes
from storage.sql.rows import from_row, run_from_row, schedule_from_row, schedule_to_row, timing_to_row, to_row
from storage.sql.statements import (
    CompiledStatement,
    insert_or_replace,
    insert_or_skip,
    lock_name,
    place_conditions,
    position_tuple,
)
from storage.sql.stores.audit import record_act
from storage.sql.stores.conversations import lock_thread, read_open_ask
from storage.sql.stores.run_transitions import close_ask, resume_run, touch_thread
from storage.sql.tables import firings, pending_asks, runs, schedules, thread_inputs

DUE_AT_ONCE_MAX = 50
_SAVE = Failpoint("storage.save_schedule")
_BEGIN = Failpoint("storage.begin_firing")
_CLOSE = Failpoint("storage.close_firing")
_THIS_PENDING = firings.c.state == "pending"
_WORK = CompiledStatement(
    select(
        type_coerce(DatabaseNow(), NullType()).label("now"),  # a float from either driver
        select(func.min(schedules.c.due_at)).where(schedules.c.state == "active").scalar_subquery().label("due_at"),
        select(func.min(firings.c.claimed_until)).where(_THIS_PENDING).scalar_subquery().label("claimed_until"),
    )
)
_TRIGGERS = select(schedules).where(schedules.c.state == "active", schedules.c.due_at == NEVER)
_ALL_TRIGGERS = CompiledStatement(_TRIGGERS)


class SqlSchedules(Store):
    """`core.stores.Schedules`."""

    @writes(_SAVE)
    def save(
        self, connection: Connection, schedule: Schedule, limits: ScheduleLimits, *, by: Person, change: str
    ) -> bool:
        place = schedule.address
        lock_name(connection, f"schedules {place.platform} {place.workspace_id}")
        in_workspace = and_(
            schedules.c.platform == place.platform,
            schedules.c.workspace_id == place.workspace_id,
            schedules.c.state != "ended",
            schedules.c.schedule_id != schedule.schedule_id,
        )
        too_old = schedules.c.armed_at < schedule.armed_at - timedelta(days=PROPOSAL_DAYS)
        connection.execute(delete(schedules).where(in_workspace, schedules.c.state == "proposed", too_old))
        of_owner = and_(in_workspace, schedules.c.owner_id == schedule.owner.person_id)
        if _count(connection, of_owner) >= limits.per_person:
            return False
        # all direct messages on Discord are one workspace, where strangers would use up each other's limit
        if not place.is_direct and _count(connection, in_workspace) >= limits.per_workspace:
            return False
        before, is_new = _find(connection, schedule.schedule_id), change in ("created", "proposed")
        if is_new is not (before is None):  # a deleted one is not changed, an id is not taken over
            return False
        if before is None:
            if insert_or_skip(connection, schedules, [schedule_to_row(schedule)]) != 1:
                return False
        else:
            if change == "resumed" and before.state == "active":  # another user was first to resume it
                return False
            insert_or_replace(connection, schedules, schedule_to_row(schedule))
        _record(connection, schedule, by, change)
        return True

    @writes(_SAVE)
    def delete(self, connection: Connection, schedule_id: str, *, by: Person) -> bool:
        schedule = _find(connection, schedule_id)
        if schedule is not None:
            connection.execute(delete(schedules).where(schedules.c.schedule_id == schedule_id))
            _record(connection, schedule, by, "deleted")
        return schedule is not None

    @writes(_SAVE)
    def pause_schedule(self, connection: Connection, schedule_id: str, *, problem: str = "", by: Person) -> bool:
        is_armed = and_(schedules.c.schedule_id == schedule_id, schedules.c.state.not_in(("paused", "proposed")))
        paused = update(schedules).where(is_armed).values(state="paused", problem=problem).returning(*schedules.c)
        row = connection.execute(paused).mappings().first()
        _drop_pending(connection, schedule_id)
        if row is not None:
            _record(connection, schedule_from_row(row), by, "paused")
        return row is not None

    @reads
    def find(self, connection: Connection, schedule_id: str) -> Schedule | None:
        return _find(connection, schedule_id)

    @reads
    def list_schedules(
        self, connection: Connection, selection: Selection, *, after: Position | None = None, limit: int | None = None
    ) -> tuple[Schedule, ...]:
        position = schedules.c.due_at, schedules.c.schedule_id
        chosen = [*place_conditions(schedules, selection), schedules.c.state != "ended"]
        if selection.person_id is not None:
            chosen.append(schedules.c.owner_id == selection.person_id)
        if after is not None:
            chosen.append(tuple_(*position) > position_tuple(after))
        statement = select(schedules).where(*chosen).order_by(*position).limit(limit)
        return tuple(map(schedule_from_row, connection.execute(statement).mappings()))

    async def find_time_of_work(self) -> datetime | None:
        (row,) = await self.database.read_statement(_WORK, {})
        now = datetime.fromtimestamp(row["now"], UTC)
        return now if any(at is not None and at <= now for at in (row["due_at"], row["claimed_until"])) else None

    @reads
    def due_schedules(
        self, connection: Connection, now: datetime, may_fire: Callable[[Schedule], bool]
    ) -> tuple[DueSchedule, ...]:
        has_pending = exists().where(firings.c.schedule_id == schedules.c.schedule_id, _THIS_PENDING)
        statement = (
            select(schedules)
            .where(schedules.c.state == "active", schedules.c.due_at <= now, ~has_pending)
            .order_by(schedules.c.due_at)
        )
        found = map(schedule_from_row, connection.execute(statement).mappings().all())
        return tuple(_with_runs(connection, one) for one in islice(filter(may_fire, found), DUE_AT_ONCE_MAX))

    @writes(_BEGIN)
    def begin_firing(
        self, connection: Connection, due: DueSchedule, plan: FiringPlan, *, due_at: datetime, claimed_until: datetime
    ) -> Firing | None:
        schedule = due.schedule
        if plan.expires_question:  # locks the thread before the schedule, as deletion does
            _expire_question(connection, due.runs[0])
        # the local time as it was stored: its instant changes with the time zone's rules
        next_local = timing_to_row(schedule.timing)["next_local"]
        this = [
            schedules.c.schedule_id == schedule.schedule_id,
            schedules.c.next_local == next_local,
            schedules.c.state != "proposed",
        ]
        if due_at == schedule.timing.due_at:  # otherwise a user asked for the firing, even of a paused one
            this.append(schedules.c.state == "active")
        pending = and_(firings.c.schedule_id == schedule.schedule_id, _THIS_PENDING)
        if connection.execute(select(schedules.c.schedule_id).where(*this).with_for_update()).first() is None:
            return None
        if connection.execute(select(firings.c.firing_id).where(pending)).first() is not None:
            return None
        values = timing_to_row(plan.next) if plan.next else {"state": "ended"}
        connection.execute(update(schedules).where(schedules.c.schedule_id == schedule.schedule_id).values(values))
        before = due.newest.run_id if plan.note and due.newest else None
        firing = Firing(
            firing_id=new_id(),
            schedule=schedule,
            due_at=due_at,
            missed=plan.missed,
            note=plan.note,
            run_id=before,
            event_key=due_at.isoformat(),
        )
        if not _insert(connection, firing, claimed_until):
            return None
        if next_local == "":  # firings of events are kept for some days
            return firing
        of_schedule = and_(firings.c.schedule_id == schedule.schedule_id, firings.c.state != "pending")
        newest = select(firings.c.firing_id).where(of_schedule).order_by(firings.c.due_at.desc()).limit(FAILURES_MAX)
        connection.execute(delete(firings).where(of_schedule, firings.c.firing_id.not_in(newest)))
        return firing

    @writes(_BEGIN)
    def begin_event_firing(
        self, connection: Connection, schedule: Schedule, event: TriggerEvent, *, claim_seconds: float
    ) -> Firing | EventRefusal:
        of_schedule = firings.c.schedule_id == schedule.schedule_id
        armed = select(schedules).where(
            schedules.c.schedule_id == schedule.schedule_id,
            schedules.c.rule == schedule.timing.rule,
            schedules.c.state == "active",
        )
        row = connection.execute(armed.with_for_update()).mappings().first()
        if row is None:
            return "gone"
        due = _with_runs(connection, schedule_from_row(row))
        now = datetime.fromtimestamp(float(connection.execute(select(DatabaseNow())).scalar_one()), UTC)
        is_old = firings.c.due_at < now - timedelta(days=EVENT_DAYS_KEPT)
        connection.execute(delete(firings).where(of_schedule, ~_THIS_PENDING, is_old))
        key, same = event.key, firings.c.event_key == event.key
        happened_at = event.happened_at or now
        counts_at = happened_at
        if event.repeat_seconds is not None:
            key = f"{key}:{now.timestamp()}"
            is_known = firings.c.due_at > now - timedelta(seconds=event.repeat_seconds)
            same = and_(firings.c.event_key.startswith(f"{event.key}:", autoescape=True), is_known)
        elif now - happened_at > timedelta(seconds=EVENT_LATE_SECONDS):
            key, counts_at = f"{MISSED_KEY}{key}", now
            same |= and_(firings.c.event_key.startswith(MISSED_KEY), firings.c.due_at >= happened_at)
        if connection.execute(select(firings.c.firing_id).where(of_schedule, same)).first():
            return "duplicate"
        counted_from = max(due.schedule.armed_at, counts_at - timedelta(hours=1))
        of_hour = and_(of_schedule, firings.c.due_at > counted_from, firings.c.due_at <= counts_at)
        if _count(connection, of_hour, firings) >= EVENTS_PER_HOUR_MAX:
            return "too_often"
        if due.is_failing:
            return "failing"
        firing = Firing(
            firing_id=new_id(),
            schedule=due.schedule,
            due_at=counts_at,
            message_ref=event.message_ref,
            event_key=key,
            thread_key=event.address.thread_key,
            group_key=event.group,
            title=event.title,
            body=event.body,
        )
        _insert(connection, firing, now + timedelta(seconds=claim_seconds))
        return firing

    @reads
    def list_triggers(self, connection: Connection, place: Address | None = None) -> tuple[Schedule, ...]:
        if place is None:
            return tuple(map(schedule_from_row, _ALL_TRIGGERS.fetch_rows(connection, {})))
        there = _TRIGGERS.where(*place_conditions(schedules, Selection.of_channel(place)))
        return tuple(map(schedule_from_row, connection.execute(there).mappings()))

    @writes(_BEGIN)
    def claim_pending_firings(
        self, connection: Connection, now: datetime, claimed_until: datetime, platforms: Collection[str]
    ) -> tuple[Firing, ...]:
        served = select(schedules.c.schedule_id).where(schedules.c.platform.in_(platforms))
        taken = (
            update(firings)
            .where(_THIS_PENDING, firings.c.claimed_until < now, firings.c.schedule_id.in_(served))
            .values(claimed_until=claimed_until)
            .returning(*firings.c)
        )
        rows = connection.execute(taken).mappings().all()
        found = ((row, _find(connection, row["schedule_id"])) for row in rows)
        return tuple(from_row(Firing, row, schedule=schedule) for row, schedule in found if schedule is not None)

    @reads
    def find_group_thread(self, connection: Connection, firing: Firing) -> Firing | None:
        of_group = and_(
            firings.c.schedule_id == firing.schedule.schedule_id,
            firings.c.group_key == firing.group_key,
            firings.c.firing_id != firing.firing_id,
        )
        opened = select(firings.c.message_ref, firings.c.thread_key).where(of_group, firings.c.message_ref != "")
        newest = connection.execute(opened.order_by(firings.c.due_at.desc()).limit(1)).first()
        if newest is not None:
            return replace(firing, thread_key=newest[1] or newest[0])
        is_earlier = tuple_(firings.c.due_at, firings.c.firing_id) < position_tuple((firing.due_at, firing.firing_id))
        earlier = select(firings.c.firing_id).where(of_group, _THIS_PENDING, is_earlier)
        return firing if connection.execute(earlier).first() is None else None

    @writes(_CLOSE)
    def record_announcement(self, connection: Connection, firing: Firing, message_ref: str) -> bool:
        announced = (
            update(firings)
            .where(firings.c.firing_id == firing.firing_id)
            .values(message_ref=message_ref, thread_key=firing.thread_key)
        )
        return connection.execute(announced).rowcount == 1

    @writes(_CLOSE)
    def close(self, connection: Connection, firing_id: str, state: FiringState, *, run_id: str | None = None) -> None:
        this = firings.c.firing_id == firing_id
        if state == "fired" and not _has_begun(connection, firing_id, run_id):
            state = "joined"
        connection.execute(update(firings).where(this).values(state=state, run_id=run_id, body=""))
        of_firing = select(firings.c.schedule_id).where(this).scalar_subquery()
        connection.execute(delete(schedules).where(schedules.c.schedule_id == of_firing, schedules.c.state == "ended"))


def _count(connection: Connection, condition: ColumnElement[bool], table: Table = schedules) -> int:
    return connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()


def _drop_pending(connection: Connection, schedule_id: str) -> None:
    connection.execute(delete(firings).where(firings.c.schedule_id == schedule_id, _THIS_PENDING))


def _find(connection: Connection, schedule_id: str) -> Schedule | None:
    row = connection.execute(select(schedules).where(schedules.c.schedule_id == schedule_id)).mappings().first()
    return schedule_from_row(row) if row else None


def _has_begun(connection: Connection, firing_id: str, run_id: str | None) -> bool:
    """Returns whether the run begins with the task of the firing, which it also does if its worker died meanwhile."""
    requested = select(runs.c.run_id).where(runs.c.run_id == run_id, runs.c.requested_at == thread_inputs.c.sent_at)
    with_task = requested.join(thread_inputs, thread_inputs.c.thread_id == runs.c.thread_id).where(
        thread_inputs.c.dedupe_key == f"{FIRING_KEY}{firing_id}"
    )
    return connection.execute(with_task).first() is not None


def _with_runs(connection: Connection, schedule: Schedule) -> DueSchedule:
    """Returns the schedule with the runs of its newest firings."""
    of_schedule = (firings.c.schedule_id == schedule.schedule_id) & (firings.c.due_at >= schedule.armed_at)
    fired = select(firings.c.run_id).where(of_schedule, firings.c.state == "fired")
    statement = select(runs).where(runs.c.run_id.in_(fired)).order_by(runs.c.run_id.desc()).limit(FAILURES_MAX)
    newest = tuple(map(run_from_row, connection.execute(statement).mappings().all()))
    is_waiting = False
    if newest:
        of_newest = pending_asks.c.run_id == newest[0].run_id
        question = select(pending_asks.c.ask_id).where(of_newest, pending_asks.c.state == "open")
        is_waiting = connection.execute(question).first() is not None
    closed = select(firings).where(of_schedule, firings.c.state.in_(("fired", "joined")))
    last = connection.execute(closed.order_by(firings.c.due_at.desc(), firings.c.firing_id.desc())).first()
    joined = None
    if last is not None and last.state == "joined":
        # the run that it joined may have ended before it read the task
        task = thread_inputs.c.dedupe_key == f"{FIRING_KEY}{last.firing_id}"
        reader = select(thread_inputs.c.taken_by).where(task).scalar_subquery()
        with_task = select(runs).where(runs.c.run_id == func.coalesce(reader, last.run_id))
        row = connection.execute(with_task).mappings().first()
        joined = run_from_row(row) if row else None
    return DueSchedule(schedule=schedule, runs=newest, is_waiting=is_waiting, joined=joined)


def _insert(connection: Connection, firing: Firing, claimed_until: datetime) -> bool:
    row = to_row(firing, "schedule")
    row |= {"schedule_id": firing.schedule.schedule_id, "claimed_until": claimed_until}
    return insert_or_skip(connection, firings, [row]) == 1


def _expire_question(connection: Connection, run: Run) -> None:
    """Closes the open question or approval of the run, which then ends."""
    lock_thread(connection, run.thread_id)
    ask = read_open_ask(connection, run.thread_id)
    if ask is None or ask.run_id != run.run_id:
        return
    if ask.kind == "approval":
        resume_run(connection, ask, run.thread_id, answer=None, person=None, unanswered="expired")
    else:
        close_ask(connection, ask, answer=None, person=None, unanswered="expired")
        touch_thread(connection, run.thread_id, state="idle")


def _record(connection: Connection, schedule: Schedule, by: Person, change: str) -> None:
    subject = f"{change} {schedule.schedule_id}"
    record_act(
        connection, "schedule_changed", schedule.address, by, thread_id=schedule.thread_id or "", subject=subject
    )
