"""Firings that an event began: what identifies it, its thread, and what it said."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
DROPS = ("triggers and hooks", "schedule WHERE next_local = ''")
_ADDED = ("event_key", "thread_key", "group_key", "title", "body")


def upgrade() -> None:
    for name in _ADDED:
        op.add_column("firing", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE firing SET event_key = firing_id")
    op.drop_index("uq_firing_time", "firing")
    op.create_index("uq_firing_event", "firing", ["schedule_id", "event_key"], unique=True)


def downgrade() -> None:
    op.execute("DELETE FROM firing WHERE schedule_id IN (SELECT schedule_id FROM schedule WHERE next_local = '')")
    op.execute("DELETE FROM schedule WHERE next_local = ''")
    op.drop_index("uq_firing_event", "firing")
    op.create_index("uq_firing_time", "firing", ["schedule_id", "due_at"], unique=True)
    for name in _ADDED:
        op.drop_column("firing", name)
