"""The outbox: deliveries that runs leave for their threads, and the fenced right to post them."""

from collections.abc import Container, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Text,
    and_,
    bindparam,
    case,
    delete,
    false,
    literal_column,
    not_,
    select,
    update,
)

from core.domain.errors import LeaseLost
from core.domain.threads import Address
from core.failpoints import Failpoint
from core.stores import Delivery, DeliveryDraft, DeliveryLease, DeliveryState
from storage.sql.database import Store, writes
from storage.sql.rows import delivery_from_row
from storage.sql.statements import CompiledStatement
from storage.sql.stores.conversations import UNENDED, read_run_with_thread
from storage.sql.stores.run_claims import is_worker_alive, record_heartbeat
from storage.sql.stores.run_transitions import insert_deliveries
from storage.sql.tables import deliveries, renderings, runs, threads

_PLAN = Failpoint("storage.plan")
_RECORD = Failpoint("storage.record")

ADDRESS = tuple(field.name for field in fields(Address))
_SLOTS = ("status", "stream", "answer", "ask", "file", "notice")
_ORDER = (case({slot: rank for rank, slot in enumerate(_SLOTS)}, value=deliveries.c.slot), deliveries.c.ordinal)
_HELD = CompiledStatement(
    select(renderings.c.fence, renderings.c.worker_id)
    .where(renderings.c.run_id == bindparam("of_run"))
    .with_for_update()
)
_OF_RUN = renderings.c.run_id == bindparam("of_run")
_CLAIMED = CompiledStatement(
    select(
        renderings.c.is_open,
        renderings.c.fence,
        renderings.c.worker_id,
        is_worker_alive(renderings.c.worker_id).label("is_held"),
    ).where(_OF_RUN)
)
_GRANT = CompiledStatement(
    update(renderings).where(_OF_RUN).values(fence=bindparam("new_fence"), worker_id=bindparam("worker"))
)
_SHUT = CompiledStatement(update(renderings).where(_OF_RUN).values(is_open=False, worker_id=None))
_STATUS = CompiledStatement(select(runs.c.status).where(runs.c.run_id == bindparam("of_run")))
_OPEN = CompiledStatement(select(renderings.c.run_id).where(renderings.c.is_open).order_by(renderings.c.run_id))
_OPEN_FOR = CompiledStatement(
    select(renderings.c.run_id)
    .where(
        renderings.c.is_open,
        (renderings.c.worker_id == bindparam("worker")) | not_(is_worker_alive(renderings.c.worker_id)),
    )
    .order_by(renderings.c.run_id)
)
_THIS_RUN, _THIS_THREAD = runs.alias(), threads.alias()
_EARLIER = CompiledStatement(
    select(renderings.c.run_id)
    .join(runs, runs.c.run_id == renderings.c.run_id)
    .join(threads, threads.c.thread_id == runs.c.thread_id)
    .join(_THIS_THREAD, and_(*(_THIS_THREAD.c[name] == threads.c[name] for name in ADDRESS)))
    .join(_THIS_RUN, _THIS_RUN.c.thread_id == _THIS_THREAD.c.thread_id)
    .where(
        renderings.c.is_open,
        _THIS_RUN.c.run_id == bindparam("of_run"),
        case(
            (runs.c.thread_id == _THIS_RUN.c.thread_id, runs.c.number < _THIS_RUN.c.number),
            else_=threads.c.created_at < _THIS_THREAD.c.created_at,
        ),
    )
    .limit(1)
)
"""Selects an open delivery of an earlier run in the same chat thread, where `new` may have begun another conversation
since."""
_IN_PLAN = deliveries.c.run_id == bindparam("of_run")
_PLANNED = CompiledStatement(select(deliveries).where(_IN_PLAN).order_by(*_ORDER))
_PLANNED_BY = CompiledStatement(
    select(deliveries)
    .join(renderings, renderings.c.run_id == deliveries.c.run_id)
    .where(_IN_PLAN, renderings.c.fence == bindparam("with_fence"), renderings.c.worker_id == bindparam("worker"))
    .order_by(*_ORDER)
)
_UNSENT = CompiledStatement(
    select(deliveries.c.delivery_id)
    .where(_IN_PLAN, deliveries.c.state != "delivered", deliveries.c.state != "failed")
    .limit(1)
)
_REFUSED = CompiledStatement(
    select(deliveries.c.slot)
    .join(runs, runs.c.run_id == deliveries.c.run_id)
    .where(
        _IN_PLAN,
        runs.c.finished_at.is_not(None),
        deliveries.c.state == "failed",
        deliveries.c.message_ref.is_(None),
        (deliveries.c.slot == "answer")
        | (deliveries.c.slot == "ask")
        | deliveries.c.body["path"].as_string().is_not(None),
    )
)
_RETRY_REFUSED = CompiledStatement(
    update(deliveries)
    .where(_IN_PLAN, deliveries.c.state == "failed", (deliveries.c.slot != "status") | (deliveries.c.ordinal == 0))
    .values(state="pending", error=None)
)
_OPENED = CompiledStatement(update(renderings).where(_OF_RUN, not_(renderings.c.is_open)).values(is_open=True))
_OF_HOLDER = select(renderings.c.run_id).where(
    _OF_RUN, renderings.c.fence == bindparam("with_fence"), renderings.c.worker_id == bindparam("worker")
)
_STILL_HELD = CompiledStatement(_OF_HOLDER)
# locks the rendering's row before the delivery's, as all transactions do; if another transaction is changing the
# delivery, PostgreSQL then sees its newest state
_THIS = update(deliveries).where(
    deliveries.c.delivery_id == bindparam("of_delivery"), deliveries.c.run_id.in_(_OF_HOLDER.with_for_update())
)
_NEW_VALUES: dict[str, BindParameter[Any]] = {
    name: bindparam(f"new_{name}") for name in ("message_ref", "error", "body")
}
_SET = CompiledStatement(_THIS.values(**_NEW_VALUES, state=bindparam("new_state")))
_SET_DELIVERED = CompiledStatement(
    _THIS.values(
        **_NEW_VALUES,
        state=case(
            (deliveries.c.is_outdated, literal_column("'stale'", Text)),
            (
                (deliveries.c.state == "stale") & (bindparam("was", type_=Text) == "attempting"),
                literal_column("'stale'", Text),
            ),
            else_=literal_column("'delivered'", Text),
        ),
        is_outdated=false(),
    )
)


class SqlDeliveries(Store):
    """`core.stores.Deliveries`."""

    async def open_runs(self, *, for_worker: str = "") -> tuple[str, ...]:
        statement = _OPEN_FOR if for_worker else _OPEN
        rows = await self.database.read_statement(statement, {"worker": for_worker})
        return tuple(row["run_id"] for row in rows)

    async def has_earlier(self, run_id: str) -> bool:
        return bool(await self.database.read_statement(_EARLIER, {"of_run": run_id}))

    @writes(Failpoint("storage.claim_rendering"))
    def claim(
        self, connection: Connection, run_id: str, worker_id: str, *, platforms: Container[str] | None = None
    ) -> DeliveryLease | None:
        """A worker can claim the same run again, after an error for instance. Doing so invalidates its previous lease.

        Locks before reading: a statement that waits for a lock sees other tables as they were before the wait."""
        _HELD.fetch_tuples(connection, {"of_run": run_id})
        row = _CLAIMED.fetch_first(connection, {"of_run": run_id})
        record_heartbeat(connection, worker_id)
        found = read_run_with_thread(connection, run_id)
        if row is None or found is None or not row["is_open"]:
            return None
        run, address = found[0], found[1].address
        if platforms is not None and address.platform not in platforms:
            return None
        if row["is_held"] and row["worker_id"] != worker_id:
            return None
        fence = row["fence"] + 1
        _GRANT.execute(connection, {"of_run": run_id, "new_fence": fence, "worker": worker_id})
        has_earlier = bool(_EARLIER.fetch_tuples(connection, {"of_run": run_id}))
        return DeliveryLease(run=run, address=address, worker_id=worker_id, fence=fence, has_earlier=has_earlier)

    async def plan_deliveries(self, lease: DeliveryLease, drafts: Sequence[DeliveryDraft]) -> tuple[Delivery, ...]:
        """Without drafts, reads the deliveries planned so far without a lock."""
        if not drafts:
            with _PLAN:
                rows = await self.database.read_statement(_PLANNED_BY, _holder(lease))
            if rows:
                return tuple(map(delivery_from_row, rows))

        def work(connection: Connection) -> tuple[Delivery, ...]:
            _hold(connection, lease)
            insert_deliveries(connection, lease.run.run_id, tuple(drafts))
            return tuple(map(delivery_from_row, _PLANNED.fetch_rows(connection, {"of_run": lease.run.run_id})))

        return await self.database.write(_PLAN, work)

    async def record(self, lease: DeliveryLease, delivery: Delivery, *, was: DeliveryState | None = None) -> None:
        """Stores the delivery. If its ask was answered while it was being posted, it is stale and not delivered, even
        if the write is repeated because its reply was lost."""
        values: dict[str, object] = {
            **_holder(lease),
            "of_delivery": delivery.delivery_id,
            "new_message_ref": delivery.message_ref,
            "new_error": delivery.error,
            "new_body": delivery.body,
            "new_state": delivery.state,
            "was": was or "",
        }
        statement = _SET_DELIVERED if delivery.state == "delivered" else _SET
        if await self.database.write_statement(_RECORD, statement, values):
            return
        if not await self.database.read_statement(_STILL_HELD, _holder(lease)):
            raise _lost(lease)

    @writes(Failpoint("storage.reopen_rendering"))
    def reopen_delivery(self, connection: Connection, run_id: str) -> bool:
        """Opens the rendering again. Locks its row first, as all transactions do. Deletes the notice, so that users are
        notified again of another refusal."""
        this = {"of_run": run_id}
        _HELD.fetch_tuples(connection, this)
        if not _REFUSED.fetch_tuples(connection, this):
            return False
        connection.execute(delete(deliveries).where(_IN_PLAN, deliveries.c.slot == "notice"), this)
        _RETRY_REFUSED.execute(connection, this)
        _OPENED.execute(connection, this)
        return True

    @writes(Failpoint("storage.close_rendering"))
    def close(self, connection: Connection, lease: DeliveryLease) -> bool:
        _hold(connection, lease)
        this = {"of_run": lease.run.run_id}
        ((status,),) = _STATUS.fetch_tuples(connection, this)
        if status in UNENDED or _UNSENT.fetch_tuples(connection, this):
            return False
        _SHUT.execute(connection, this)
        return True


def _hold(connection: Connection, rendering: DeliveryLease) -> None:
    """Locks the rendering's row. Raises LeaseLost if another worker has it or it was closed."""
    held = _HELD.fetch_tuples(connection, {"of_run": rendering.run.run_id})
    if [tuple(row) for row in held] != [(rendering.fence, rendering.worker_id)]:
        raise _lost(rendering)


def _holder(rendering: DeliveryLease) -> dict[str, object]:
    return {"of_run": rendering.run.run_id, "with_fence": rendering.fence, "worker": rendering.worker_id}


def _lost(rendering: DeliveryLease) -> LeaseLost:
    return LeaseLost(f"run {rendering.run.run_id} is shown by another worker")
