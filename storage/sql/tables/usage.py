"""The table of what model calls cost, beside those in `storage.sql.tables`."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from sqlalchemy import Float, Index, Integer, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import CONSTRAINT_NAMES, key, moment, once_of, words

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES


class UsageRow(SQLModel, table=True):
    """The ledger: who spent what, where, on which model. It outlives thread and run, so that budgets hold.

    `estimated_usd` is what of the cost was reckoned from a price.
    """

    __tablename__ = "usage"
    __table_args__ = (
        Index("ix_usage_person", "platform", "workspace_id", "user_id"),
        Index("ix_usage_workspace_time", "platform", "workspace_id", "created_at"),
    )

    usage_id: str = key()
    thread_id: str | None = once_of("thread.thread_id")
    run_id: str | None = once_of("run.run_id")
    turn_id: str = words()
    platform: str = words()
    workspace_id: str = words()
    channel_id: str = words()
    user_id: str | None = words(None)
    model: str = words()
    input_tokens: int = Field(default=0, sa_type=Integer)
    cached_tokens: int = Field(default=0, sa_type=Integer)
    output_tokens: int = Field(default=0, sa_type=Integer)
    cost_usd: float = Field(default=0.0, sa_type=Float)
    estimated_usd: float = Field(default=0.0, sa_type=Float)
    created_at: datetime = moment(index=True)


usages: Table = SQLModel.metadata.tables["usage"]
