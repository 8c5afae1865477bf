"""The revisions of the schema, and upgrading from any older revision to the newest."""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from core.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0009"
"""The newest revision, as a constant because importing Alembic takes longer than the rest of the start."""

_ADVISORY_LOCK = 7_468_726_561


def needs_migration(connection: Connection) -> bool:
    """Returns whether the schema is missing or older than this program."""
    return _revision(connection) != HEAD


def migrate_connection(connection: Connection) -> None:
    """Upgrades to the newest revision in the transaction of the connection.

    Raises ConfigurationError if this version of the program does not know the current revision.
    """
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    config = _config()
    config.attributes["connection"] = connection
    refuse_newer(_revision(connection))
    command.upgrade(config, "head")


def refuse_newer(revision: str | None) -> None:
    """Raises ConfigurationError if this version of the program does not know the revision."""
    if revision is None or revision == HEAD:
        return
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision not in known:
        raise ConfigurationError(
            f"The database was made by a newer version of Threadhand (revision {revision}); update the program."
        )


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
