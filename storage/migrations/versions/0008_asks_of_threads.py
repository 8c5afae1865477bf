"""The questions of a thread are found without a look at those of all others."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_pending_ask_thread_id"), "pending_ask", ["thread_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_pending_ask_thread_id"), table_name="pending_ask")
