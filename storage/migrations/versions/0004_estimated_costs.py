"""What of a cost is an estimate."""

import sqlalchemy as sa
from alembic import op


revision = '0004'
down_revision = '0003'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column('usage', sa.Column('estimated_usd', sa.Float(), nullable=False, server_default='0'))
    with op.batch_alter_table('usage', schema=None) as batch_op:
        batch_op.alter_column('estimated_usd', existing_type=sa.Float(), server_default=None)


def downgrade() -> None:
    op.drop_column('usage', 'estimated_usd')
