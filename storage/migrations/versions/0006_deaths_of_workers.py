"""How many workers in a row have died over a run."""

import sqlalchemy as sa
from alembic import op


revision = '0006'
down_revision = '0005'
branch_labels = None
depends_on = None


def upgrade() -> None:
    # the default stays: to take it away SQLite would make the table anew, and with it lose all that hangs on it
    op.add_column('run', sa.Column('deaths', sa.Integer(), nullable=False, server_default='0'))


def downgrade() -> None:
    op.drop_column('run', 'deaths')
