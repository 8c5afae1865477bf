"""When a run was queued again."""

import sqlalchemy as sa
from alembic import op


revision = '0007'
down_revision = '0006'
branch_labels = None
depends_on = None


def upgrade() -> None:
    # nothing to fill in: of one that waits now, what is known is when it was made, which is what null says
    op.add_column('run', sa.Column('requeued_at', sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column('run', 'requeued_at')
