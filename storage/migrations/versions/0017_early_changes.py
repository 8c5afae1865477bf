"""Edits and deletions that come before their messages."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

KEYS = ("platform", "workspace_id", "channel_id", "message_ref", "kind")


def upgrade() -> None:
    op.create_table(
        "early_change",
        *(sa.Column(name, sa.Text(), nullable=False) for name in KEYS),
        sa.Column("author_id", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(*KEYS, name=op.f("pk_early_change")),
    )


def downgrade() -> None:
    op.drop_table("early_change")
