"""Tables of schedules and their firings."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from sqlalchemy import Index, Integer, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import (
    CONSTRAINT_NAMES,
    UtcDateTime,
    cascading_foreign_key,
    nullable_foreign_key,
    text_column,
    text_primary_key,
    timestamp_column,
)

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES
SQLModel.model_config["defer_build"] = True  # rows are never validated, so pydantic's validators need not be built


class ScheduleRow(SQLModel, table=True, defer_build=True):
    """`next_local` is the local time, in ISO 8601, that is due at `due_at`, with a `*` if it is the second time that
    the clocks show it. It is empty for a trigger, which is never due."""

    __tablename__ = "schedule"
    __table_args__ = (
        Index("ix_schedule_due", "state", "due_at"),
        Index("ix_schedule_place", "platform", "workspace_id", "channel_id"),
    )

    schedule_id: str = text_primary_key()
    platform: str = text_column()
    workspace_id: str = text_column()
    channel_id: str = text_column()
    thread_key: str = text_column()
    thread_id: str | None = nullable_foreign_key("thread.thread_id")
    owner_id: str = text_column()
    owner_name: str = text_column()
    agent_id: str | None = text_column(None)
    task: str = text_column()
    rule: str = text_column()
    next_local: str = text_column()
    time_zone: str = text_column()
    due_at: datetime = Field(sa_type=UtcDateTime)
    state: str = text_column("active")
    problem: str = text_column()
    armed_at: datetime = timestamp_column()


class FiringRow(SQLModel, table=True, defer_build=True):
    """A schedule fires once at each time or event. A process works on a pending firing until `claimed_until`."""

    __tablename__ = "firing"
    __table_args__ = (Index("uq_firing_event", "schedule_id", "event_key", unique=True),)

    firing_id: str = text_primary_key()
    schedule_id: str = cascading_foreign_key("schedule.schedule_id")
    due_at: datetime = Field(sa_type=UtcDateTime)
    state: str = text_column("pending")
    missed: int = Field(default=0, sa_type=Integer)
    message_ref: str = text_column()
    run_id: str | None = text_column(None)
    note: str = text_column()
    event_key: str = text_column()
    thread_key: str = text_column()
    group_key: str = text_column()
    title: str = text_column()
    body: str = text_column()
    claimed_until: datetime = timestamp_column()


schedules: Table = SQLModel.metadata.tables["schedule"]
firings: Table = SQLModel.metadata.tables["firing"]
