"""The time zone of the author of each input."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
DROPS = ("messages with the time zone of their author", "thread_input WHERE author_time_zone IS NOT NULL")


def upgrade() -> None:
    op.add_column("thread_input", sa.Column("author_time_zone", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("thread_input", "author_time_zone")
