"""Drops the beginnings of documents and the time at which a question expires, which nothing reads."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("knowledge_entry", "head")
    op.drop_column("pending_ask", "expires_at")


def downgrade() -> None:
    op.add_column("pending_ask", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("knowledge_entry", sa.Column("head", sa.Text(), nullable=False, server_default=""))
