"""The Alembic environment: runs each command on the connection that `storage.migrations` passes."""

from typing import Literal

from alembic import context

from storage.sql.columns import JsonDocument, SanitizedText, UtcDateTime
from storage.sql.tables import METADATA


def _render(kind: str, item: object, autogenerate: object) -> str | Literal[False]:
    """Renders plain SQLAlchemy types, so that revisions stay valid when our own types change."""
    match item:
        case SanitizedText():
            return "sa.Text()"
        case UtcDateTime():
            return "sa.DateTime(timezone=True)"
        case JsonDocument():
            return "sa.JSON()"
        case _:
            return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    compare_type=True,
    render_item=_render,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
