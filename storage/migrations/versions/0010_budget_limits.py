"""Budget limits that admins have changed in chat."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budget_limit",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(
            "platform", "workspace_id", "scope", name=op.f("pk_budget_limit")
        ),
    )


def downgrade() -> None:
    op.drop_table("budget_limit")
