"""What a thread looks like at one moment, read inside a transaction."""

from sqlalchemy import Connection, bindparam, select

from core.domain.threads import Address, Ask, Run, Thread, ThreadSnapshot
from storage.sql.prepared import CompiledStatement
from storage.sql.rows import Row, ask_from_row, run_from_row, thread_from_row
from storage.sql.tables import pending_asks, runs, threads

ACTIVE = ("queued", "running")
"""What a worker may take or has taken."""
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
    threads.c.thread_id
    == select(runs.c.thread_id).where(runs.c.run_id == bindparam("run")).scalar_subquery()
)
_READ, _READ_BOUND = CompiledStatement(_WITH_ID), CompiledStatement(_BOUND_TO)
_LOCK, _LOCK_BOUND, _LOCK_OF_RUN = (
    CompiledStatement(statement.with_for_update(key_share=True))
    for statement in (_WITH_ID, _BOUND_TO, _OF_RUN)
)
_NEWEST_RUN = CompiledStatement(
    select(runs)
    .where(runs.c.thread_id == bindparam("thread"))
    .order_by(runs.c.run_id.desc())
    .limit(1)
)
_OPEN_ASK = CompiledStatement(
    select(pending_asks).where(
        pending_asks.c.thread_id == bindparam("thread"), pending_asks.c.state == "open"
    )
)


def lock_thread(connection: Connection, thread_id: str) -> Thread | None:
    """Reads a thread for change. Every transaction that changes a thread locks its row first, so that none deadlock."""
    return _thread(_LOCK.first(connection, {"thread": thread_id}))


def lock_thread_of_run(connection: Connection, run_id: str) -> Thread | None:
    """`lock_thread` for whoever knows a run only; None where there is no such run."""
    return _thread(_LOCK_OF_RUN.first(connection, {"run": run_id}))


def lock_thread_at(connection: Connection, address: Address) -> Thread | None:
    """`lock_thread` for the one thread that the address leads to now."""
    return _thread(_LOCK_BOUND.first(connection, _place(address)))


def read_thread(connection: Connection, thread_id: str) -> Thread | None:
    return _thread(_READ.first(connection, {"thread": thread_id}))


def read_thread_at(connection: Connection, address: Address) -> Thread | None:
    """The one thread that the address leads to now."""
    return _thread(_READ_BOUND.first(connection, _place(address)))


def read_newest_run(connection: Connection, thread_id: str) -> Run | None:
    row = _NEWEST_RUN.first(connection, {"thread": thread_id})
    return run_from_row(row) if row else None


def read_open_ask(connection: Connection, thread_id: str) -> Ask | None:
    """A thread has one at most."""
    row = _OPEN_ASK.first(connection, {"thread": thread_id})
    return ask_from_row(row) if row else None


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


def _place(address: Address) -> dict[str, object]:
    return {
        "platform": address.platform,
        "workspace": address.workspace_id,
        "channel": address.channel_id,
        "key": address.thread_key,
    }
