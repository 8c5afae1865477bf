"""The agent versions that admins have saved, which take the place of agent files."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "saved_agent",
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent_version_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_saved_agent")),
    )


def downgrade() -> None:
    op.drop_table("saved_agent")
