"""What people think of answers, and an index for finding a person's runs."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "feedback",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("person_id", sa.Text(), nullable=False),
        sa.Column("person_name", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("is_good", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("given_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"],
            ["thread.thread_id"],
            name=op.f("fk_feedback_thread_id_thread"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "person_id", name=op.f("pk_feedback")),
    )
    op.create_index(op.f("ix_feedback_thread_id"), "feedback", ["thread_id"])
    op.create_index(op.f("ix_run_requester_id"), "run", ["requester_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_run_requester_id"), "run")
    op.drop_index(op.f("ix_feedback_thread_id"), "feedback")
    op.drop_table("feedback")
