"""The order of a thread's runs and questions, which does not depend on clocks."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLES = {"run": ("run_id", "finished_at IS NULL"), "pending_ask": ("ask_id", "state = 'open'")}
"""Ids and what is last in its thread, however the clock went: the run that has not ended, and the open question."""


def upgrade() -> None:
    for table, (key, is_last) in TABLES.items():
        op.add_column(table, sa.Column("number", sa.Integer(), nullable=False, server_default="0"))
        op.execute(
            f"UPDATE {table} SET number = ordered.number FROM"
            f" (SELECT {key} AS id, row_number() OVER"
            f" (PARTITION BY thread_id ORDER BY {is_last}, {key}) AS number FROM {table}) AS ordered"
            f" WHERE {table}.{key} = ordered.id"
        )
        op.drop_index(op.f(f"ix_{table}_thread_id"), table_name=table)
        op.create_index(f"uq_{table}_number", table, ["thread_id", "number"], unique=True)


def downgrade() -> None:
    for table in TABLES:
        op.drop_index(f"uq_{table}_number", table_name=table)
        op.create_index(op.f(f"ix_{table}_thread_id"), table, ["thread_id"], unique=False)
        op.drop_column(table, "number")
