"""The chat thread of each message version, so that it is forgotten with its conversation."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("thread_key", sa.Text(), nullable=False, server_default="")
    op.add_column("message_version", column)


def downgrade() -> None:
    op.drop_column("message_version", "thread_key")
