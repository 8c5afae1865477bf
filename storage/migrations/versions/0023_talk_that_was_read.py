"""The run that has read a message that users wrote to each other."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("heard_message", sa.Column("read_by", sa.Text(), nullable=True))
    # until now, what was sent before the newest input that a run had taken up counted as read
    op.execute(
        "UPDATE heard_message SET read_by = '' WHERE sent_at < (SELECT max(sent_at) FROM thread_input"
        " WHERE thread_input.thread_id = heard_message.thread_id AND taken_by IS NOT NULL)"
    )


def downgrade() -> None:
    op.drop_column("heard_message", "read_by")
