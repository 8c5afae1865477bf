"""What a thread looks like at one moment, read inside a transaction."""

from sqlalchemy import ColumnElement, Connection, and_, select

from core.threads import Address, Thread, ThreadSnapshot
from storage.rows import ask_of, run_of, thread_of
from storage.tables import pending_asks, runs, threads

ACTIVE = ("queued", "running")
"""What a worker may take or has taken."""
UNENDED = (*ACTIVE, "waiting")


def bound_to(address: Address) -> ColumnElement[bool]:
    """Holds for the one thread that the address leads to now."""
    return and_(
        threads.c.platform == address.platform,
        threads.c.workspace_id == address.workspace_id,
        threads.c.channel_id == address.channel_id,
        threads.c.thread_key == address.thread_key,
        threads.c.unbound_at.is_(None),
    )


def lock_thread(connection: Connection, condition: ColumnElement[bool]) -> Thread | None:
    """Reads a thread for change. Every transaction that changes a thread locks its row first, so that none deadlock."""
    statement = select(threads).where(condition).with_for_update(key_share=True)
    row = connection.execute(statement).mappings().one_or_none()
    return thread_of(row) if row else None


def read_thread(connection: Connection, condition: ColumnElement[bool]) -> Thread | None:
    row = connection.execute(select(threads).where(condition)).mappings().one_or_none()
    return thread_of(row) if row else None


def snapshot_of(connection: Connection, thread: Thread) -> ThreadSnapshot:
    newest = select(runs).where(runs.c.thread_id == thread.thread_id).order_by(runs.c.run_id.desc())
    row = connection.execute(newest.limit(1)).mappings().one_or_none()
    last_run = run_of(row) if row else None
    is_active = last_run is not None and last_run.status in UNENDED
    open_ask = select(pending_asks).where(
        pending_asks.c.thread_id == thread.thread_id, pending_asks.c.state == "open"
    )
    asked = connection.execute(open_ask).mappings().one_or_none()
    return ThreadSnapshot(
        thread=thread,
        active_run=last_run if is_active else None,
        last_run=last_run,
        open_ask=ask_of(asked) if asked else None,
    )
