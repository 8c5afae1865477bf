"""Leases of runs with a growing fence, heartbeats by the database's clock, stop requests, and the backlog."""

from datetime import UTC, datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)

from core.domain.actions import IncomingMessage
from core.domain.threads import Lease, Person
from core.failpoints import Failpoint
from core.observability import Backlog
from storage.sql.columns import DatabaseNow, UtcDateTime
from storage.sql.database import Database, Store, reads, writes
from storage.sql.rows import to_row
from storage.sql.statements import CompiledStatement, upsert
from storage.sql.stores.audit import record_in_thread
from storage.sql.stores.conversations import (
    ACTIVE,
    UNENDED,
    lock_thread_of_run,
    read_newest_run,
    read_snapshot,
    read_thread_at,
)
from storage.sql.stores.inbox import claim_key, insert_input
from storage.sql.stores.run_transitions import insert_queued_run, request_stop
from storage.sql.tables import leases, renderings, runs, threads, workers

WORKER_GONE_SECONDS = 4.0
CLAIMABLE_RUNS_MAX = 500
"""More than a worker can start at once. Putting every run of a long queue into the run queue each second would waste
time."""
SUSPECT_DEATHS_MIN = 3
"""A worker executes at most one run with this many deaths at a time, so that a poison run cannot kill harmless runs
that happen to be on the same workers. A finished turn resets the count."""

_IS_LEASE_OF_RUN = (leases.c.thread_id == runs.c.thread_id) & (leases.c.run_id == runs.c.run_id)
_HEARTBEAT = Failpoint("storage.heartbeat")


def is_worker_alive(worker_id: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL expression: the worker exists and has a recent heartbeat."""
    return exists().where(workers.c.worker_id == worker_id, has_recent_heartbeat())


def has_recent_heartbeat() -> ColumnElement[bool]:
    """SQL expression: the heartbeat is recent. Timestamps in the future count as stale: they were written before the
    database's clock was set back, and a living worker replaces its heartbeat within a second."""
    return func.abs(DatabaseNow() - workers.c.heartbeat_at) <= WORKER_GONE_SECONDS


_HEART_BEATS = CompiledStatement(upsert(workers, ("worker_id",), computed={"heartbeat_at": DatabaseNow()}))


_IS_CLAIMABLE = or_(runs.c.status == "queued", (runs.c.status == "running") & not_(is_worker_alive(leases.c.worker_id)))


def _claimable_runs() -> Select[tuple[str]]:
    """Selects the claimable runs in the order in which to start them. Channels and users take turns, and so do
    workspaces. A run's place is the number of runs before it, including running ones, in its channel or by its
    requester, whichever is larger."""
    workspace = (threads.c.platform, threads.c.workspace_id)

    def place(*group: ColumnElement[str]) -> ColumnElement[int]:
        return func.row_number().over(partition_by=group, order_by=(active.c.is_claimable, active.c.run_id))

    active = (
        select(
            runs.c.run_id,
            *workspace,
            threads.c.channel_id,
            # runs without a requester do not share one
            func.coalesce(runs.c.requester_id, runs.c.run_id).label("requester_id"),
            case((_IS_CLAIMABLE, 1), else_=0).label("is_claimable"),
        )
        .join(threads, threads.c.thread_id == runs.c.thread_id)
        .outerjoin(leases, _IS_LEASE_OF_RUN)
        .where(or_(runs.c.status == "queued", runs.c.status == "running"))
        .subquery()
    )
    of_workspace = (active.c.platform, active.c.workspace_id)
    in_channel = place(*of_workspace, active.c.channel_id)
    by_person = place(*of_workspace, active.c.requester_id)
    placed = select(active, case((in_channel > by_person, in_channel), else_=by_person).label("place")).subquery()
    turn = func.row_number().over(
        partition_by=(placed.c.platform, placed.c.workspace_id),
        order_by=(placed.c.is_claimable, placed.c.place, placed.c.run_id),
    )
    turns = select(placed.c.run_id, placed.c.is_claimable, turn.label("turn")).subquery()
    return (
        select(turns.c.run_id)
        .where(turns.c.is_claimable == 1)
        .order_by(turns.c.turn, turns.c.run_id)
        .limit(bindparam("most"))
    )


_CLAIMABLE = CompiledStatement(_claimable_runs())
_STOPPED = CompiledStatement(
    select(runs.c.run_id)
    .outerjoin(leases, _IS_LEASE_OF_RUN)
    .where(_IS_CLAIMABLE, runs.c.stop_requested)
    .limit(bindparam("most"))
)
_HELD = CompiledStatement(
    select(leases, runs.c.attempt, runs.c.deaths)
    .join(runs, _IS_LEASE_OF_RUN)
    .where(runs.c.status == "running", leases.c.worker_id == bindparam("worker"))
)
_CLAIMED = CompiledStatement(
    select(
        runs.c.status,
        runs.c.attempt,
        runs.c.deaths,
        leases.c.fence,
        is_worker_alive(leases.c.worker_id).label("is_held"),
    )
    .outerjoin(leases, leases.c.thread_id == runs.c.thread_id)
    .where(runs.c.run_id == bindparam("run"))
)
_OTHER_SUSPECTS = CompiledStatement(
    select(runs.c.run_id)
    .join(leases, _IS_LEASE_OF_RUN)
    .where(
        runs.c.status == "running",
        runs.c.deaths >= SUSPECT_DEATHS_MIN,
        runs.c.run_id != bindparam("run"),
        leases.c.worker_id == bindparam("worker"),
    )
)
_GRANT = CompiledStatement(upsert(leases, ("thread_id",), ("fence", "run_id", "worker_id")))
_BEGIN = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("run"))
    .values(
        status="running",
        attempt=bindparam("now_attempt"),
        deaths=bindparam("now_deaths"),
        started_at=func.coalesce(runs.c.started_at, bindparam("now", type_=UtcDateTime())),
    )
)


def record_heartbeat(connection: Connection, worker_id: str) -> None:
    _HEART_BEATS.execute(connection, {"worker_id": worker_id})


class SqlRunClaims(Store):
    """`core.stores.RunClaims`."""

    def __init__(self, database: Database, *, found_max: int = CLAIMABLE_RUNS_MAX) -> None:
        super().__init__(database)
        self._found_max = found_max

    @writes(Failpoint("storage.claim_run"))
    def claim(self, connection: Connection, run_id: str, worker_id: str) -> Lease | None:
        thread = lock_thread_of_run(connection, run_id)
        row = _CLAIMED.fetch_first(connection, {"run": run_id})
        if thread is None or row is None:
            return None
        record_heartbeat(connection, worker_id)
        if row["status"] not in ACTIVE or row["is_held"]:
            return None
        lease = Lease(
            thread_id=thread.thread_id,
            run_id=run_id,
            worker_id=worker_id,
            fence=(row["fence"] or 0) + 1,
            attempt=row["attempt"] + 1,
            deaths=row["deaths"] + (row["status"] == "running"),
        )
        # the heartbeat above locks the worker's row, so its other claims wait for this transaction
        suspect = {"run": run_id, "worker": worker_id}
        if lease.deaths >= SUSPECT_DEATHS_MIN and _OTHER_SUSPECTS.fetch_tuples(connection, suspect):
            return None
        _GRANT.execute(connection, to_row(lease, "attempt", "deaths"))
        began = {
            "run": lease.run_id,
            "now_attempt": lease.attempt,
            "now_deaths": lease.deaths,
            "now": datetime.now(UTC),
        }
        _BEGIN.execute(connection, began)
        return lease

    @writes(Failpoint("storage.release_run"))
    def release(self, connection: Connection, lease: Lease) -> None:
        lock_thread_of_run(connection, lease.run_id)
        freed = connection.execute(
            update(leases)
            .where(
                leases.c.thread_id == lease.thread_id, leases.c.run_id == lease.run_id, leases.c.fence == lease.fence
            )
            .values(run_id=None, worker_id=None)
        )
        if freed.rowcount:
            connection.execute(
                update(runs).where(runs.c.run_id == lease.run_id).values(status="queued", requeued_at=datetime.now(UTC))
            )

    async def heartbeat(self, worker_id: str) -> None:
        values = {"worker_id": worker_id}
        await self.database.write_statement(_HEARTBEAT, _HEART_BEATS, values, is_durable=False, is_urgent=True)

    @writes(Failpoint("storage.mark_worker_dead"))
    def remove_worker(self, connection: Connection, worker_id: str) -> None:
        connection.execute(delete(workers).where(workers.c.worker_id == worker_id))

    async def claimable_runs(self) -> tuple[str, ...]:
        rows = await self.database.read_statement(_CLAIMABLE, {"most": self._found_max})
        return tuple(row["run_id"] for row in rows)

    async def stopped_runs(self) -> tuple[str, ...]:
        rows = await self.database.read_statement(_STOPPED, {"most": self._found_max})
        return tuple(row["run_id"] for row in rows)

    async def held_leases(self, worker_id: str) -> tuple[Lease, ...]:
        rows = await self.database.read_statement(_HELD, {"worker": worker_id})
        return tuple(Lease(**row) for row in rows)


class SqlRunRequests(Store):
    """`core.stores.RunRequests`."""

    @writes(Failpoint("storage.request_stop"))
    def request_stop(
        self, connection: Connection, run_id: str, *, by: Person | None = None, at: datetime | None = None
    ) -> bool:
        thread = lock_thread_of_run(connection, run_id)
        if thread is None:
            return False
        snapshot = read_snapshot(connection, thread)
        if snapshot.active_run is None or snapshot.active_run.run_id != run_id:
            return False
        request_stop(connection, snapshot, until=at or datetime.now(UTC))
        record_in_thread(connection, "stop_requested", thread, by, run_id=run_id)
        return True

    @writes(Failpoint("storage.retry"))
    def retry_run(
        self,
        connection: Connection,
        run_id: str,
        dedupe_key: str,
        *,
        continues: bool,
        by: Person | None = None,
        at: datetime | None = None,
    ) -> str | None:
        """With `continues` the new run gets the input "Continue." from the requester of the old run."""
        sent_at = at or datetime.now(UTC)
        thread = lock_thread_of_run(connection, run_id)
        if thread is None or read_thread_at(connection, thread.address) != thread:
            return None  # `new` or `forget` has unbound the conversation, so nobody could reach its run
        old = read_newest_run(connection, thread.thread_id)
        if old is None or old.run_id != run_id or old.status in UNENDED or not claim_key(connection, dedupe_key):
            return None
        run = insert_queued_run(
            connection, thread, old.requester, old.request_ref, agent_id=old.agent_id, requested_at=sent_at
        )
        if continues and old.requester is not None:
            words = IncomingMessage(
                dedupe_key=dedupe_key,
                address=thread.address,
                person=old.requester,
                text="Continue.",
                sent_at=sent_at,
                is_addressed=True,
            )
            insert_input(connection, thread.thread_id, words, "addressed")
        again = "continue" if continues else "retry"
        record_in_thread(connection, "run_requested", thread, by, run_id=run.run_id, subject=again)
        return run.run_id


class SqlBacklogs(Store):
    """`core.observability.Backlogs`."""

    @reads
    def backlog(self, connection: Connection) -> Backlog:
        since = func.coalesce(runs.c.requeued_at, runs.c.created_at)
        by_status = select(runs.c.status, func.count(), func.min(since))
        rows = connection.execute(by_status.where(runs.c.status.in_(UNENDED)).group_by(runs.c.status)).all()
        queued_at = next((oldest for status, _, oldest in rows if status == "queued"), None)
        age = DatabaseNow() - workers.c.heartbeat_at
        alive = connection.execute(select(func.count(), func.max(age)).where(has_recent_heartbeat())).one()
        shown = select(func.count()).where(renderings.c.is_open)
        now = datetime.now(UTC)
        return Backlog(
            runs=dict.fromkeys(UNENDED, 0) | {status: count for status, count, _ in rows},
            oldest_queued_seconds=max(0.0, (now - queued_at).total_seconds()) if queued_at else 0.0,
            processes_alive=alive[0],
            oldest_heartbeat_seconds=max(0.0, float(alive[1] or 0)),
            open_deliveries=connection.execute(shown).scalar_one(),
        )
