"""What each person has spent in each channel on each day."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KEYS = ("platform", "workspace_id", "day", "channel_id", "user_id")
INDEXES = {
    "ix_usage_workspace_time": ["platform", "workspace_id", "created_at"],
    "ix_usage_created_at": ["created_at"],
}


def upgrade() -> None:
    op.create_table(
        "usage_day",
        *(sa.Column(name, sa.Text(), nullable=False) for name in KEYS),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(*KEYS, name=op.f("pk_usage_day")),
    )
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    day = "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')" if is_postgresql else "substr(created_at, 1, 10)"
    tokens = "input_tokens + output_tokens"
    op.execute(
        "INSERT INTO usage_day"
        f" SELECT platform, workspace_id, {day}, channel_id, coalesce(user_id, ''), sum(cost_usd), sum({tokens}),"
        f" sum(CASE WHEN cost_usd = 0 THEN {tokens} ELSE 0 END)"
        " FROM usage GROUP BY 1, 2, 3, 4, 5"
    )
    for name in INDEXES:
        op.drop_index(name, table_name="usage")


def downgrade() -> None:
    for name, columns in INDEXES.items():
        op.create_index(name, "usage", columns)
    op.drop_table("usage_day")
