"""Agent versions, the agent chosen for a thread, and the plans of threads."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, RowMapping, bindparam, delete, func, select, update

from core.agents.definition import AgentDefinition, AgentVersion
from core.domain.errors import ConfigurationError, LeaseLost
from core.domain.ids import new_id
from core.domain.plans import Plan, Plans
from core.domain.threads import Address, Lease, Person
from core.failpoints import Failpoint
from storage.sql.database import Store, reads, writes
from storage.sql.rows import Row, from_row
from storage.sql.statements import CompiledStatement, insert_or_replace, insert_or_skip
from storage.sql.stores.audit import record_act, record_in_thread
from storage.sql.stores.conversations import insert_thread, lock_thread, lock_thread_at
from storage.sql.stores.inbox import claim_key
from storage.sql.tables import agent_versions, leases, plans, runs, saved_agents, threads

_RECORD = Failpoint("storage.record_agent")
_SAVE = Failpoint("storage.save_agent")
_SIGN = CompiledStatement(
    update(runs)
    .where(runs.c.run_id == bindparam("run"))
    .values(agent_id=bindparam("agent"), agent_version_id=bindparam("version"))
)


_SAVED = (
    select(agent_versions)
    .join(saved_agents, saved_agents.c.agent_version_id == agent_versions.c.agent_version_id)
    .order_by(agent_versions.c.agent_id)
)


class SqlAgentVersions(Store):
    """`core.agents.roster.AgentVersions`."""

    async def find_or_add_version(self, definition: AgentDefinition) -> AgentVersion:
        known = await self.database.read(lambda c: _known(c, definition))
        return known or await self.database.write(_RECORD, lambda c: _recorded(c, definition))

    @reads
    def find_version(self, connection: Connection, agent_version_id: str) -> AgentVersion | None:
        statement = select(agent_versions).where(agent_versions.c.agent_version_id == agent_version_id)
        row = connection.execute(statement).mappings().one_or_none()
        return _version_of(row) if row else None

    @reads
    def list_versions(self, connection: Connection, agent_id: str) -> tuple[AgentVersion, ...]:
        of_agent = select(agent_versions).where(agent_versions.c.agent_id == agent_id).order_by(agent_versions.c.number)
        return _readable(connection.execute(of_agent).mappings().all())

    @reads
    def saved_versions(self, connection: Connection) -> Mapping[str, AgentVersion]:
        rows = connection.execute(_SAVED).mappings().all()
        return {version.definition.agent_id: version for version in _readable(rows)}

    @writes(_SAVE)
    def make_current(
        self,
        connection: Connection,
        definition: AgentDefinition,
        *,
        at: Address | None = None,
        by: Person | None = None,
    ) -> AgentVersion:
        version = _recorded(connection, definition)
        values = {"agent_id": definition.agent_id, "agent_version_id": version.agent_version_id}
        insert_or_replace(connection, saved_agents, values)
        if at is not None and by is not None:
            record_act(connection, "agent_changed", at, by, subject=f"{definition.agent_id} version {version.number}")
        return version

    @writes(_SAVE)
    def reset_to_file(self, connection: Connection, agent_id: str, *, at: Address, by: Person) -> bool:
        dropped = connection.execute(delete(saved_agents).where(saved_agents.c.agent_id == agent_id))
        if not dropped.rowcount:
            return False
        record_act(connection, "agent_changed", at, by, subject=f"{agent_id} reset")
        return True

    @writes(Failpoint("storage.choose_agent"))
    def choose_agent(
        self,
        connection: Connection,
        address: Address,
        agent_id: str,
        *,
        by: Person | None = None,
        begins_with: str = "",
    ) -> None:
        thread = lock_thread_at(connection, address) or insert_thread(connection, address, begins_with=begins_with)
        connection.execute(update(threads).where(threads.c.thread_id == thread.thread_id).values(agent_id=agent_id))
        record_in_thread(connection, "agent_chosen", thread, by, subject=agent_id)


def _readable(rows: Sequence[RowMapping]) -> tuple[AgentVersion, ...]:
    found: list[AgentVersion] = []
    for row in rows:
        with suppress(ConfigurationError):
            found.append(_version_of(row))
    return tuple(found)


def _known(connection: Connection, definition: AgentDefinition) -> AgentVersion | None:
    statement = (
        select(agent_versions)
        .where(
            agent_versions.c.agent_id == definition.agent_id, agent_versions.c.content_hash == definition.content_hash
        )
        .order_by(agent_versions.c.number)
        .limit(1)
    )
    row = connection.execute(statement).mappings().one_or_none()
    return _version_of(row) if row else None


def _recorded(connection: Connection, definition: AgentDefinition) -> AgentVersion:
    """Version numbers are unique, so if two processes record at the same time, one insert is skipped and that process
    looks again. The number is read first: a version recorded after that is either found or conflicts."""
    newest = select(func.coalesce(func.max(agent_versions.c.number), 0)).where(
        agent_versions.c.agent_id == definition.agent_id
    )
    while True:
        number = connection.execute(newest).scalar_one() + 1
        if known := _known(connection, definition):
            return known
        values: dict[str, object] = {
            "agent_version_id": new_id(),
            "agent_id": definition.agent_id,
            "number": number,
            "content_hash": definition.content_hash,
            "definition": definition.model_dump(mode="json", exclude_defaults=True),
            "created_at": datetime.now(UTC),
        }
        insert_or_skip(connection, agent_versions, [values])


def set_run_agent(connection: Connection, lease: Lease, agent: AgentVersion) -> None:
    """Assigns the agent version to the run of the lease, whose row is locked."""
    signed = {"run": lease.run_id, "agent": agent.definition.agent_id, "version": agent.agent_version_id}
    _SIGN.execute(connection, signed)


def _version_of(row: Row) -> AgentVersion:
    try:
        definition = AgentDefinition.model_validate(row["definition"])
    except ValidationError as error:
        raise ConfigurationError(
            f"Version {row['number']} of the agent {row['agent_id']} was recorded by a newer release of Threadhand."
        ) from error
    return from_row(AgentVersion, row, definition=definition)


_PLAN = TypeAdapter(Plan)
_COLUMNS = frozenset({"plan_id", "is_active"})


class SqlPlans(Store):
    """`core.domain.plans.PlanStore`."""

    @writes(Failpoint("storage.change_plans"))
    def change(
        self,
        connection: Connection,
        thread_id: str,
        how: Callable[[Plans], Plans],
        *,
        lease: Lease | None = None,
        key: str = "",
    ) -> Plans:
        is_done = key and not claim_key(connection, f"{key}:done")
        if lock_thread(connection, thread_id) is None:
            return ()
        if lease is not None:
            held = select(leases.c.run_id, leases.c.fence).where(leases.c.thread_id == lease.thread_id)
            row = connection.execute(held).one_or_none()
            if row is None or (row.run_id, row.fence) != (lease.run_id, lease.fence):
                raise LeaseLost(f"run {lease.run_id}: fence {lease.fence} is not the newest")
        rows = _rows(connection, thread_id)
        before = tuple(map(_plan, rows))
        after = before if is_done else how(before)
        if after == before:
            return after
        made_at = {row["plan_id"]: row["created_at"] for row in rows}
        connection.execute(delete(plans).where(plans.c.thread_id == thread_id))
        values: list[dict[str, object]] = [
            {
                "thread_id": thread_id,
                "plan_id": plan.plan_id,
                "content": _PLAN.dump_python(plan, mode="json", exclude=set(_COLUMNS)),
                "is_active": plan.is_active,
                "created_at": made_at.get(plan.plan_id, datetime.now(UTC)),
            }
            for plan in after
        ]
        if values:
            connection.execute(plans.insert(), values)
        return after

    @reads
    def read(self, connection: Connection, thread_id: str) -> Plans:
        return tuple(map(_plan, _rows(connection, thread_id)))


def _rows(connection: Connection, thread_id: str) -> Sequence[RowMapping]:
    of_thread = select(plans).where(plans.c.thread_id == thread_id).order_by(plans.c.created_at)
    return connection.execute(of_thread).mappings().all()


def _plan(row: RowMapping) -> Plan:
    return _PLAN.validate_python({**row["content"], **{name: row[name] for name in _COLUMNS}})
