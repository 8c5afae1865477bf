"""What people say to each other in a thread, how the agent follows it, and how sure it is that a request was for it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "heard_message",
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("message_ref", sa.Text(), nullable=False),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("author_name", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("files", sa.JSON(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"],
            ["thread.thread_id"],
            name=op.f("fk_heard_message_thread_id_thread"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("thread_id", "message_ref", name=op.f("pk_heard_message")),
    )
    op.create_table(
        "follow_mode",
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("channel_id", sa.Text(), nullable=False),
        sa.Column("thread_key", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "platform", "workspace_id", "channel_id", "thread_key", name=op.f("pk_follow_mode")
        ),
    )
    for table in ("thread_input", "run"):
        op.add_column(
            table, sa.Column("attention", sa.Text(), nullable=False, server_default="addressed")
        )


def downgrade() -> None:
    for table in ("thread_input", "run"):
        op.drop_column(table, "attention")
    op.drop_table("follow_mode")
    op.drop_table("heard_message")
