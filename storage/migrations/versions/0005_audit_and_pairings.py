"""Who did what, and who was let in by a code."""

import sqlalchemy as sa
from alembic import op


revision = '0005'
down_revision = '0004'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('audit_entry',
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('happened_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('action', sa.Text(), nullable=False),
    sa.Column('actor_id', sa.Text(), nullable=False),
    sa.Column('actor_name', sa.Text(), nullable=False),
    sa.Column('platform', sa.Text(), nullable=False),
    sa.Column('workspace_id', sa.Text(), nullable=False),
    sa.Column('channel_id', sa.Text(), nullable=False),
    sa.Column('thread_key', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('entry_id', name=op.f('pk_audit_entry'))
    )
    with op.batch_alter_table('audit_entry', schema=None) as batch_op:
        batch_op.create_index('ix_audit_entry_workspace', ['platform', 'workspace_id', 'entry_id'], unique=False)

    op.create_table('pairing',
    sa.Column('platform', sa.Text(), nullable=False),
    sa.Column('workspace_id', sa.Text(), nullable=False),
    sa.Column('person_id', sa.Text(), nullable=False),
    sa.Column('person_name', sa.Text(), nullable=False),
    sa.Column('code_hash', sa.Text(), nullable=True),
    sa.Column('asked_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('paired_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('paired_by', sa.Text(), nullable=True),
    sa.PrimaryKeyConstraint('platform', 'workspace_id', 'person_id', name=op.f('pk_pairing'))
    )


def downgrade() -> None:
    op.drop_table('pairing')
    op.drop_table('audit_entry')
