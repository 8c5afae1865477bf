"""Run by Alembic for each command; works on the connection that `storage.migrations` hands over."""

from alembic import context
from sqlmodel import SQLModel

import storage.tables  # noqa: F401 - fills the metadata
from storage.columns import Document, UtcDateTime, Words

_PLAIN = {Words: "sa.Text()", UtcDateTime: "sa.DateTime(timezone=True)", Document: "sa.JSON()"}


def _render(kind: str, item: object, autogenerate: object) -> str | bool:
    """A revision names plain types, so that it stays true when our own types change."""
    return _PLAIN.get(type(item), False) if kind == "type" else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    compare_type=True,
    render_item=_render,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
