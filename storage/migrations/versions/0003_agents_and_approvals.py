"""A ledger that outlives its threads, approvals beside questions, agents with versions."""

import sqlalchemy as sa
from alembic import op


revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('usage', schema=None) as batch_op:
        batch_op.drop_constraint(batch_op.f('fk_usage_run_id'), type_='foreignkey')
        batch_op.drop_constraint(batch_op.f('fk_usage_thread_id'), type_='foreignkey')
        batch_op.alter_column('run_id', existing_type=sa.Text(), nullable=True)
        batch_op.alter_column('thread_id', existing_type=sa.Text(), nullable=True)
        batch_op.create_foreign_key(batch_op.f('fk_usage_run_id'), 'run', ['run_id'], ['run_id'], ondelete='SET NULL')
        batch_op.create_foreign_key(batch_op.f('fk_usage_thread_id'), 'thread', ['thread_id'], ['thread_id'], ondelete='SET NULL')
        batch_op.create_index('ix_usage_workspace_time', ['platform', 'workspace_id', 'created_at'], unique=False)

    op.add_column('pending_ask', sa.Column('kind', sa.Text(), nullable=False, server_default='question'))
    op.add_column('pending_ask', sa.Column('subject', sa.Text(), nullable=False, server_default=''))
    op.add_column('run', sa.Column('agent_id', sa.Text(), nullable=True))
    op.add_column('run', sa.Column('agent_version_id', sa.Text(), nullable=True))

    op.create_table('agent_version',
    sa.Column('agent_version_id', sa.Text(), nullable=False),
    sa.Column('agent_id', sa.Text(), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False),
    sa.Column('content_hash', sa.Text(), nullable=False),
    sa.Column('definition', sa.JSON(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('agent_version_id', name=op.f('pk_agent_version'))
    )
    with op.batch_alter_table('agent_version', schema=None) as batch_op:
        batch_op.create_index('uq_agent_version_number', ['agent_id', 'number'], unique=True)

    op.create_table('plan',
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('plan_id', sa.Text(), nullable=False),
    sa.Column('content', sa.JSON(), nullable=False),
    sa.Column('is_active', sa.Boolean(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_plan_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('thread_id', 'plan_id', name=op.f('pk_plan'))
    )


def downgrade() -> None:
    op.drop_table('plan')
    op.drop_table('agent_version')
    op.drop_column('run', 'agent_version_id')
    op.drop_column('run', 'agent_id')
    op.drop_column('pending_ask', 'subject')
    op.drop_column('pending_ask', 'kind')
    op.execute(sa.text('DELETE FROM "usage" WHERE thread_id IS NULL OR run_id IS NULL'))
    with op.batch_alter_table('usage', schema=None) as batch_op:
        batch_op.drop_index('ix_usage_workspace_time')
        batch_op.drop_constraint(batch_op.f('fk_usage_run_id'), type_='foreignkey')
        batch_op.drop_constraint(batch_op.f('fk_usage_thread_id'), type_='foreignkey')
        batch_op.alter_column('run_id', existing_type=sa.Text(), nullable=False)
        batch_op.alter_column('thread_id', existing_type=sa.Text(), nullable=False)
        batch_op.create_foreign_key(batch_op.f('fk_usage_run_id'), 'run', ['run_id'], ['run_id'], ondelete='CASCADE')
        batch_op.create_foreign_key(batch_op.f('fk_usage_thread_id'), 'thread', ['thread_id'], ['thread_id'], ondelete='CASCADE')
