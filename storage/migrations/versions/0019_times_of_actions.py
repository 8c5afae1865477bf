"""The newest version of each message, and until when requests and stops count, by the clocks of the chat platforms."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

KEYS = ("platform", "workspace_id", "channel_id", "message_ref")
TIMES = ("requested_at", "stopped_until")


def upgrade() -> None:
    op.drop_table("early_change")  # what it kept was for messages of the last hour
    op.create_table(
        "message_version",
        *(sa.Column(name, sa.Text(), nullable=False) for name in KEYS),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("is_deleted", sa.Boolean(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(*KEYS, name=op.f("pk_message_version")),
    )
    for name in TIMES:
        op.add_column("run", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.drop_column("run", "stop_position")


def downgrade() -> None:
    op.add_column("run", sa.Column("stop_position", sa.Integer(), nullable=True))
    for name in TIMES:
        op.drop_column("run", name)
    op.drop_table("message_version")
    op.create_table(
        "early_change",
        *(sa.Column(name, sa.Text(), nullable=False) for name in (*KEYS, "kind")),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(*KEYS, "kind", name=op.f("pk_early_change")),
    )
