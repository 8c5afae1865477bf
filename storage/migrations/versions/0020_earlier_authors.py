"""Who had written in a chat thread before the agent came, and the follow mode that reads everything."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("thread", sa.Column("earlier_authors", sa.JSON(), nullable=True))
    op.execute(
        "UPDATE thread SET earlier_authors = '{}' WHERE EXISTS (SELECT 1 FROM thread_input"
        " WHERE thread_input.thread_id = thread.thread_id AND message_ref = thread.thread_key)"
    )
    # "follow" was the default until now, and reads more from now on
    op.execute("UPDATE follow_mode SET mode = 'default' WHERE mode = 'follow'")


def downgrade() -> None:
    op.execute("UPDATE follow_mode SET mode = 'follow' WHERE mode = 'default'")
    op.drop_column("thread", "earlier_authors")
