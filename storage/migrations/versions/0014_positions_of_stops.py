"""What a thread had received when a stop was requested, so that later messages start a new run."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("stop_position", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("run", "stop_position")
