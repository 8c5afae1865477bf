"""Schedules and their firings, the time zone of a run's requester, and indexes that list threads."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
DROPS = ("schedules and reminders", "schedule WHERE next_local <> ''")


def upgrade() -> None:
    op.add_column("run", sa.Column("requester_time_zone", sa.Text(), nullable=True))
    op.create_table(
        "schedule",
        sa.Column("schedule_id", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("platform", "workspace_id", "channel_id")),
        sa.Column("thread_key", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("owner_name", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("task", "rule", "next_local", "time_zone")),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("armed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("schedule_id", name="pk_schedule"),
        sa.ForeignKeyConstraint(["thread_id"], ["thread.thread_id"], name="fk_schedule_thread_id", ondelete="SET NULL"),
    )
    op.create_index("ix_schedule_due", "schedule", ["state", "due_at"])
    op.create_index("ix_schedule_place", "schedule", ["platform", "workspace_id", "channel_id"])
    op.create_index("ix_schedule_thread_id", "schedule", ["thread_id"])
    op.create_table(
        "firing",
        sa.Column("firing_id", sa.Text(), nullable=False),
        sa.Column("schedule_id", sa.Text(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("missed", sa.Integer(), nullable=False),
        sa.Column("message_ref", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("claimed_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("firing_id", name="pk_firing"),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedule.schedule_id"], name="fk_firing_schedule_id", ondelete="CASCADE"
        ),
    )
    op.create_index("uq_firing_time", "firing", ["schedule_id", "due_at"], unique=True)
    op.create_index("ix_thread_activity", "thread", ["last_activity_at", "thread_id"])
    op.create_index("ix_thread_place", "thread", ["platform", "workspace_id", "channel_id"])


def downgrade() -> None:
    op.drop_index("ix_thread_place", "thread")
    op.drop_index("ix_thread_activity", "thread")
    op.drop_table("firing")
    op.drop_table("schedule")
    op.drop_column("run", "requester_time_zone")
