"""The time zone of the author of each input."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("thread_input", sa.Column("author_time_zone", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("thread_input", "author_time_zone")
