"""The first tables."""

import sqlalchemy as sa
from alembic import op


revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('inbound_cursor',
    sa.Column('platform', sa.Text(), nullable=False),
    sa.Column('scope', sa.Text(), nullable=False),
    sa.Column('cursor', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('platform', 'scope', name=op.f('pk_inbound_cursor'))
    )
    op.create_table('thread',
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('platform', sa.Text(), nullable=False),
    sa.Column('workspace_id', sa.Text(), nullable=False),
    sa.Column('channel_id', sa.Text(), nullable=False),
    sa.Column('thread_key', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('title', sa.Text(), nullable=False),
    sa.Column('agent_id', sa.Text(), nullable=True),
    sa.Column('sandbox_id', sa.Text(), nullable=True),
    sa.Column('next_sequence', sa.Integer(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('last_activity_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('unbound_at', sa.DateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('thread_id', name=op.f('pk_thread'))
    )
    with op.batch_alter_table('thread', schema=None) as batch_op:
        batch_op.create_index('uq_thread_bound_address', ['platform', 'workspace_id', 'channel_id', 'thread_key'], unique=True, sqlite_where=sa.text('unbound_at IS NULL'), postgresql_where=sa.text('unbound_at IS NULL'))

    op.create_table('worker',
    sa.Column('worker_id', sa.Text(), nullable=False),
    sa.Column('heartbeat_at', sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint('worker_id', name=op.f('pk_worker'))
    )
    op.create_table('workspace',
    sa.Column('platform', sa.Text(), nullable=False),
    sa.Column('workspace_id', sa.Text(), nullable=False),
    sa.Column('token', sa.Text(), nullable=True),
    sa.Column('settings', sa.JSON(), nullable=False),
    sa.PrimaryKeyConstraint('platform', 'workspace_id', name=op.f('pk_workspace'))
    )
    op.create_table('claimed_key',
    sa.Column('dedupe_key', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=True),
    sa.Column('run_id', sa.Text(), nullable=True),
    sa.Column('claimed_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_claimed_key_thread_id'), ondelete='SET NULL'),
    sa.PrimaryKeyConstraint('dedupe_key', name=op.f('pk_claimed_key'))
    )
    with op.batch_alter_table('claimed_key', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_claimed_key_claimed_at'), ['claimed_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_claimed_key_thread_id'), ['thread_id'], unique=False)

    op.create_table('lease',
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('fence', sa.Integer(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=True),
    sa.Column('worker_id', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_lease_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('thread_id', name=op.f('pk_lease'))
    )
    op.create_table('message',
    sa.Column('message_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=True),
    sa.Column('sequence', sa.Integer(), nullable=False),
    sa.Column('type', sa.Text(), nullable=False),
    sa.Column('is_llm_message', sa.Boolean(), nullable=False),
    sa.Column('content', sa.JSON(), nullable=False),
    sa.Column('metadata', sa.JSON(), nullable=False),
    sa.Column('token_count', sa.Integer(), nullable=False),
    sa.Column('agent_id', sa.Text(), nullable=True),
    sa.Column('agent_version_id', sa.Text(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_message_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('message_id', name=op.f('pk_message'))
    )
    with op.batch_alter_table('message', schema=None) as batch_op:
        batch_op.create_index('uq_message_order', ['thread_id', 'sequence'], unique=True)

    op.create_table('run',
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('status', sa.Text(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('requester_id', sa.Text(), nullable=True),
    sa.Column('requester_name', sa.Text(), nullable=True),
    sa.Column('request_ref', sa.Text(), nullable=False),
    sa.Column('model', sa.Text(), nullable=False),
    sa.Column('stop_requested', sa.Boolean(), nullable=False),
    sa.Column('finish_reason', sa.Text(), nullable=True),
    sa.Column('error', sa.Text(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('finished_at', sa.DateTime(timezone=True), nullable=True),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_run_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('run_id', name=op.f('pk_run'))
    )
    with op.batch_alter_table('run', schema=None) as batch_op:
        batch_op.create_index('ix_run_status', ['status'], unique=False)
        batch_op.create_index(batch_op.f('ix_run_thread_id'), ['thread_id'], unique=False)
        batch_op.create_index('uq_run_active', ['thread_id'], unique=True, sqlite_where=sa.text("status IN ('queued', 'running')"), postgresql_where=sa.text("status IN ('queued', 'running')"))

    op.create_table('sandbox',
    sa.Column('sandbox_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('provider', sa.Text(), nullable=False),
    sa.Column('provider_ref', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('snapshot_ref', sa.Text(), nullable=True),
    sa.Column('last_used_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_sandbox_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('sandbox_id', name=op.f('pk_sandbox'))
    )
    with op.batch_alter_table('sandbox', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_sandbox_thread_id'), ['thread_id'], unique=False)

    op.create_table('thread_input',
    sa.Column('input_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('dedupe_key', sa.Text(), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('kind', sa.Text(), nullable=False),
    sa.Column('author_id', sa.Text(), nullable=False),
    sa.Column('author_name', sa.Text(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('files', sa.JSON(), nullable=False),
    sa.Column('message_ref', sa.Text(), nullable=False),
    sa.Column('sent_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('taken_by', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_thread_input_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('input_id', name=op.f('pk_thread_input')),
    sa.UniqueConstraint('dedupe_key', name=op.f('uq_thread_input_dedupe_key'))
    )
    with op.batch_alter_table('thread_input', schema=None) as batch_op:
        batch_op.create_index('ix_thread_input_order', ['thread_id', 'position'], unique=True)

    op.create_table('delivery',
    sa.Column('delivery_id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('slot', sa.Text(), nullable=False),
    sa.Column('ordinal', sa.Integer(), nullable=False),
    sa.Column('body', sa.JSON(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('is_outdated', sa.Boolean(), nullable=False),
    sa.Column('message_ref', sa.Text(), nullable=True),
    sa.Column('error', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['run_id'], ['run.run_id'], name=op.f('fk_delivery_run_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('delivery_id', name=op.f('pk_delivery'))
    )
    with op.batch_alter_table('delivery', schema=None) as batch_op:
        batch_op.create_index('uq_delivery_place', ['run_id', 'slot', 'ordinal'], unique=True)

    op.create_table('pending_ask',
    sa.Column('ask_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('options', sa.JSON(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('answer', sa.Text(), nullable=True),
    sa.Column('answered_by_id', sa.Text(), nullable=True),
    sa.Column('answered_by_name', sa.Text(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('answered_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=True),
    sa.ForeignKeyConstraint(['run_id'], ['run.run_id'], name=op.f('fk_pending_ask_run_id'), ondelete='CASCADE'),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_pending_ask_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('ask_id', name=op.f('pk_pending_ask'))
    )
    with op.batch_alter_table('pending_ask', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_pending_ask_run_id'), ['run_id'], unique=False)
        batch_op.create_index('uq_pending_ask_open', ['thread_id'], unique=True, sqlite_where=sa.text("state = 'open'"), postgresql_where=sa.text("state = 'open'"))

    op.create_table('rendering',
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('is_open', sa.Boolean(), nullable=False),
    sa.Column('fence', sa.Integer(), nullable=False),
    sa.Column('worker_id', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['run_id'], ['run.run_id'], name=op.f('fk_rendering_run_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('run_id', name=op.f('pk_rendering'))
    )
    with op.batch_alter_table('rendering', schema=None) as batch_op:
        batch_op.create_index('uq_rendering_open', ['run_id'], unique=True, sqlite_where=sa.text('is_open'), postgresql_where=sa.text('is_open'))

    op.create_table('run_event',
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('n', sa.Integer(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('body', sa.Text(), nullable=True),
    sa.Column('turn_id', sa.Text(), nullable=True),
    sa.Column('message_id', sa.Text(), nullable=True),
    sa.Column('agent_id', sa.Text(), nullable=True),
    sa.Column('agent_version_id', sa.Text(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['run.run_id'], name=op.f('fk_run_event_run_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('run_id', 'attempt', 'n', name=op.f('pk_run_event'))
    )
    op.create_table('tool_call',
    sa.Column('position', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('turn_id', sa.Text(), nullable=False),
    sa.Column('index', sa.Integer(), nullable=False),
    sa.Column('call_id', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('arguments', sa.JSON(), nullable=False),
    sa.Column('raw', sa.Text(), nullable=False),
    sa.Column('assistant_message_id', sa.Text(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('result', sa.JSON(), nullable=True),
    sa.Column('metadata', sa.JSON(), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['run.run_id'], name=op.f('fk_tool_call_run_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('position', name=op.f('pk_tool_call'))
    )
    with op.batch_alter_table('tool_call', schema=None) as batch_op:
        batch_op.create_index('uq_tool_call_place', ['run_id', 'turn_id', 'index'], unique=True)

    op.create_table('usage',
    sa.Column('usage_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('turn_id', sa.Text(), nullable=False),
    sa.Column('platform', sa.Text(), nullable=False),
    sa.Column('workspace_id', sa.Text(), nullable=False),
    sa.Column('channel_id', sa.Text(), nullable=False),
    sa.Column('user_id', sa.Text(), nullable=True),
    sa.Column('model', sa.Text(), nullable=False),
    sa.Column('input_tokens', sa.Integer(), nullable=False),
    sa.Column('cached_tokens', sa.Integer(), nullable=False),
    sa.Column('output_tokens', sa.Integer(), nullable=False),
    sa.Column('cost_usd', sa.Float(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['run.run_id'], name=op.f('fk_usage_run_id'), ondelete='CASCADE'),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_usage_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('usage_id', name=op.f('pk_usage'))
    )
    with op.batch_alter_table('usage', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_usage_created_at'), ['created_at'], unique=False)
        batch_op.create_index('ix_usage_person', ['platform', 'workspace_id', 'user_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_usage_run_id'), ['run_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_usage_thread_id'), ['thread_id'], unique=False)



def downgrade() -> None:
    with op.batch_alter_table('usage', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_usage_thread_id'))
        batch_op.drop_index(batch_op.f('ix_usage_run_id'))
        batch_op.drop_index('ix_usage_person')
        batch_op.drop_index(batch_op.f('ix_usage_created_at'))

    op.drop_table('usage')
    with op.batch_alter_table('tool_call', schema=None) as batch_op:
        batch_op.drop_index('uq_tool_call_place')

    op.drop_table('tool_call')
    op.drop_table('run_event')
    with op.batch_alter_table('rendering', schema=None) as batch_op:
        batch_op.drop_index('uq_rendering_open', sqlite_where=sa.text('is_open'), postgresql_where=sa.text('is_open'))

    op.drop_table('rendering')
    with op.batch_alter_table('pending_ask', schema=None) as batch_op:
        batch_op.drop_index('uq_pending_ask_open', sqlite_where=sa.text("state = 'open'"), postgresql_where=sa.text("state = 'open'"))
        batch_op.drop_index(batch_op.f('ix_pending_ask_run_id'))

    op.drop_table('pending_ask')
    with op.batch_alter_table('delivery', schema=None) as batch_op:
        batch_op.drop_index('uq_delivery_place')

    op.drop_table('delivery')
    with op.batch_alter_table('thread_input', schema=None) as batch_op:
        batch_op.drop_index('ix_thread_input_order')

    op.drop_table('thread_input')
    with op.batch_alter_table('sandbox', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_sandbox_thread_id'))

    op.drop_table('sandbox')
    with op.batch_alter_table('run', schema=None) as batch_op:
        batch_op.drop_index('uq_run_active', sqlite_where=sa.text("status IN ('queued', 'running')"), postgresql_where=sa.text("status IN ('queued', 'running')"))
        batch_op.drop_index(batch_op.f('ix_run_thread_id'))
        batch_op.drop_index('ix_run_status')

    op.drop_table('run')
    with op.batch_alter_table('message', schema=None) as batch_op:
        batch_op.drop_index('uq_message_order')

    op.drop_table('message')
    op.drop_table('lease')
    with op.batch_alter_table('claimed_key', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_claimed_key_thread_id'))
        batch_op.drop_index(batch_op.f('ix_claimed_key_claimed_at'))

    op.drop_table('claimed_key')
    op.drop_table('workspace')
    op.drop_table('worker')
    with op.batch_alter_table('thread', schema=None) as batch_op:
        batch_op.drop_index('uq_thread_bound_address', sqlite_where=sa.text('unbound_at IS NULL'), postgresql_where=sa.text('unbound_at IS NULL'))

    op.drop_table('thread')
    op.drop_table('inbound_cursor')
