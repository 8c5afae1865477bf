"""Statements that are compiled once, against what SQLAlchemy itself makes of them, on each database."""

from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection, bindparam, func, select, update

from core.domain.ids import new_id
from core.failpoints import Failpoint
from storage.sql.columns import UtcDateTime
from storage.sql.database import Database
from storage.sql.statements import CompiledStatement, insert_ignoring_conflicts, upsert
from storage.sql.tables import deliveries, leases, runs, threads

TEST = Failpoint("test.prepared")
MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

ADD_THREAD = CompiledStatement(threads.insert())
ADD_RUN = CompiledStatement(runs.insert())
ADD_DELIVERIES = CompiledStatement(partial(insert_ignoring_conflicts, deliveries))
NEWEST_FIRST = (
    select(runs)
    .where(runs.c.thread_id == bindparam("thread"), runs.c.status == "queued")
    .order_by(runs.c.run_id.desc())
    .limit(2)
)


def add_thread(connection: Connection, runs_of_it: int = 0) -> str:
    thread_id = new_id()
    names = ("platform", "workspace_id", "channel_id", "thread_key", "state", "title")
    ADD_THREAD.execute(
        connection,
        {
            **dict.fromkeys(names, thread_id),
            "thread_id": thread_id,
            "next_sequence": 1,
            "created_at": MOMENT,
            "last_activity_at": MOMENT,
        },
    )
    for number in range(runs_of_it):
        run = {
            "run_id": f"{thread_id}-{number}",
            "thread_id": thread_id,
            "number": number + 1,
            "status": "queued" if number == 0 else "waiting",
            "attempt": number,
            "request_ref": "zero \0 and half a pair \ud83d",
            "model": "",
            "stop_requested": number == 0,
            "created_at": MOMENT,
        }
        ADD_RUN.execute(connection, run)
    return thread_id


async def test_rows_are_what_sqlalchemy_reads(database: Database) -> None:
    def work(connection: Connection) -> None:
        wanted = {"thread": add_thread(connection, 2)}
        ours = CompiledStatement(NEWEST_FIRST).fetch_rows(connection, wanted)
        theirs = connection.execute(NEWEST_FIRST, wanted).mappings().all()
        assert ours == [dict(row) for row in theirs]
        assert [(row["attempt"], row["stop_requested"]) for row in ours] == [(0, True)]
        assert ours[0]["created_at"] == MOMENT
        assert ours[0]["request_ref"] == "zero \ufffd and half a pair \ufffd"

    await database.write(TEST, work)


async def test_the_first_row_is_none_where_there_are_none(database: Database) -> None:
    statement = CompiledStatement(NEWEST_FIRST)
    for _ in range(2):
        assert await database.read(lambda c: statement.fetch_first(c, {"thread": "nowhere"})) is None


async def test_one_statement_takes_many_rows_and_counts_what_it_met(database: Database) -> None:
    def row(run_id: str, ordinal: int) -> dict[str, object]:
        place = {"run_id": run_id, "slot": "answer", "ordinal": ordinal}
        body = {"text": "é", "number": ordinal}
        kept = {"state": "pending", "is_outdated": False}
        return {"delivery_id": new_id(), "body": body, **place, **kept}

    def work(connection: Connection) -> None:
        run_id = f"{add_thread(connection, 1)}-0"
        ADD_DELIVERIES.execute(connection, row(run_id, 1), row(run_id, 2), row(run_id, 3))
        assert ADD_DELIVERIES.execute(connection, row(run_id, 3)) == 0
        assert ADD_DELIVERIES.execute(connection, row(run_id, 4)) == 1
        of_run = deliveries.c.run_id == bindparam("of_run")
        moved = CompiledStatement(update(deliveries).where(of_run).values(ordinal=deliveries.c.ordinal + 10))
        assert moved.execute(connection, {"of_run": run_id}) == 4
        read = CompiledStatement(select(deliveries.c.body, deliveries.c.ordinal).where(of_run))
        found = {one["ordinal"]: one["body"] for one in read.fetch_rows(connection, {"of_run": run_id})}
        assert found == {number + 10: {"text": "é", "number": number} for number in (1, 2, 3, 4)}

    await database.write(TEST, work)


async def test_a_row_is_replaced_and_a_moment_is_kept(database: Database) -> None:
    lease = CompiledStatement(upsert(leases, ("thread_id",), ("fence", "run_id", "worker_id")))
    began = func.coalesce(runs.c.started_at, bindparam("now", type_=UtcDateTime()))
    begin = CompiledStatement(update(runs).where(runs.c.run_id == bindparam("run")).values(started_at=began))

    def work(connection: Connection) -> None:
        thread_id = add_thread(connection, 1)
        for fence in (1, 2):
            values = {"fence": fence, "run_id": f"{thread_id}-0", "worker_id": "w"}
            lease.execute(connection, {"thread_id": thread_id, **values})
            begin.execute(connection, {"run": f"{thread_id}-0", "now": MOMENT.replace(year=2029 + fence)})
        fences = connection.execute(select(leases.c.fence).where(leases.c.thread_id == thread_id))
        assert fences.scalars().all() == [2]
        assert connection.execute(select(runs.c.started_at)).scalar_one() == MOMENT

    await database.write(TEST, work)
