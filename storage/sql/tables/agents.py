"""The tables of agents and plans, beside those in `storage.sql.tables`, which imports them too."""

# SQLModel types __tablename__ as its own descriptor; a plain string is what it documents.
# pyright: reportAssignmentType=false

from datetime import datetime

from pydantic import JsonValue
from sqlalchemy import Index, Integer, Table
from sqlmodel import Field, SQLModel

from storage.sql.columns import CONSTRAINT_NAMES, JsonDocument, key, moment, part_of, words

SQLModel.metadata.naming_convention = CONSTRAINT_NAMES


class AgentVersionRow(SQLModel, table=True):
    """What an agent was like from `created_at` on; the newest has the highest number. Never changed."""

    __tablename__ = "agent_version"
    __table_args__ = (Index("uq_agent_version_number", "agent_id", "number", unique=True),)

    agent_version_id: str = key()
    agent_id: str = words()
    number: int = Field(sa_type=Integer)
    content_hash: str = words()
    definition: JsonValue = Field(sa_type=JsonDocument)
    created_at: datetime = moment()


class PlanRow(SQLModel, table=True):
    """`content` is the plan as JSON; one plan of a thread at most is active."""

    __tablename__ = "plan"

    thread_id: str = part_of("thread.thread_id", primary_key=True)
    plan_id: str = key()
    content: JsonValue = Field(sa_type=JsonDocument)
    is_active: bool = False
    created_at: datetime = moment()


agent_versions: Table = SQLModel.metadata.tables["agent_version"]
plans: Table = SQLModel.metadata.tables["plan"]
