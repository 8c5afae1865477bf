"""Knowledge: entries, chunks, vectors and the full-text index."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from storage.sql.full_text import POSTGRESQL_INDEX, SQLITE_INDEX


revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == 'postgresql'
    op.create_table('knowledge_entry',
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('scope_kind', sa.Text(), nullable=False),
    sa.Column('owner_id', sa.Text(), nullable=False),
    sa.Column('thread_id', sa.Text(), nullable=True),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('kind', sa.Text(), nullable=False),
    sa.Column('title', sa.Text(), nullable=False),
    sa.Column('content_hash', sa.Text(), nullable=False),
    sa.Column('size_bytes', sa.BigInteger(), nullable=False),
    sa.Column('tokens', sa.Integer(), nullable=False),
    sa.Column('chunk_count', sa.Integer(), nullable=False),
    sa.Column('head', sa.Text(), nullable=False),
    sa.Column('is_ready', sa.Boolean(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['thread_id'], ['thread.thread_id'], name=op.f('fk_knowledge_entry_thread_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('entry_id', name=op.f('pk_knowledge_entry'))
    )
    with op.batch_alter_table('knowledge_entry', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_knowledge_entry_thread_id'), ['thread_id'], unique=False)
        batch_op.create_index('uq_knowledge_entry_content', ['scope_kind', 'owner_id', 'content_hash'], unique=True, sqlite_where=sa.text('is_ready'), postgresql_where=sa.text('is_ready'))

    op.create_table('knowledge_chunk',
    sa.Column('chunk_id', KEY, nullable=False),
    sa.Column('entry_id', sa.Text(), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False),
    sa.Column('page', sa.Integer(), nullable=True),
    sa.Column('place', sa.Text(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('tokens', sa.Integer(), nullable=False),
    sa.Column('overlap', sa.Integer(), nullable=False),
    sa.Column('terms', postgresql.TSVECTOR() if is_postgresql else sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['entry_id'], ['knowledge_entry.entry_id'], name=op.f('fk_knowledge_chunk_entry_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('chunk_id', name=op.f('pk_knowledge_chunk'))
    )
    with op.batch_alter_table('knowledge_chunk', schema=None) as batch_op:
        batch_op.create_index('uq_knowledge_chunk_place', ['entry_id', 'number'], unique=True)

    op.create_table('knowledge_vector',
    sa.Column('chunk_id', KEY, autoincrement=False, nullable=False),
    sa.Column('model', sa.Text(), nullable=False),
    sa.Column('signs', sa.LargeBinary(), nullable=False),
    sa.Column('vector', sa.LargeBinary(), nullable=False),
    sa.ForeignKeyConstraint(['chunk_id'], ['knowledge_chunk.chunk_id'], name=op.f('fk_knowledge_vector_chunk_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('chunk_id', 'model', name=op.f('pk_knowledge_vector'))
    )
    for statement in POSTGRESQL_INDEX if is_postgresql else SQLITE_INDEX:
        op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name != 'postgresql':
        op.execute('DROP TABLE knowledge_fts')
    op.drop_table('knowledge_vector')
    op.drop_table('knowledge_chunk')
    op.drop_table('knowledge_entry')
