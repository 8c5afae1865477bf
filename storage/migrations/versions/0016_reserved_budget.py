"""What the model call of a run may cost, so that calls at the same time do not pass a limit together."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

NAMES = ("reserved_tokens", "reserved_microdollars")


def upgrade() -> None:
    for name in NAMES:
        column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
        op.add_column("run", column)


def downgrade() -> None:
    for name in NAMES:
        op.drop_column("run", name)
