"""The revisions of the schema, and upgrading from any older revision to the newest."""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, column, func, inspect, select, table, text

from core.domain.errors import ConfigurationError
from storage.sql.columns import DatabaseNow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alembic.config import Config
    from alembic.script import Script

HEAD = "0026"
"""The newest revision, as a constant because importing Alembic takes longer than the rest of the start."""

_WORKER_GONE_SECONDS = 4.0
_ADVISORY_LOCK = 7_468_726_561


def needs_migration(connection: Connection) -> bool:
    """Returns whether the schema is missing or older than this program."""
    return _revision(connection) != HEAD


def migrate_connection(connection: Connection) -> None:
    """Upgrades to the newest revision in the transaction of the connection.

    Raises ConfigurationError if this version of the program does not know the current revision."""
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    config = _config()
    config.attributes["connection"] = connection
    refuse_unknown(_revision(connection))
    command.upgrade(config, "head")


def move_connection(connection: Connection, revision: str, *, may_drop: bool) -> None:
    """Migrates the schema to the revision, which may be older, in the transaction of the connection. Going back drops
    the tables and columns that the older version does not have.

    Raises ConfigurationError if this version does not know the revision, if the revision is older and a process is
    still alive, or if users' data would be dropped without `may_drop`."""
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    config, current = _config(), _revision(connection)
    config.attributes["connection"] = connection
    refuse_unknown(current)
    if revision not in (known := _known_revisions()):
        raise ConfigurationError(f"There is no revision {revision}; this version knows {known[0]} to {known[-1]}.")
    if current is None or current <= revision:
        command.upgrade(config, revision)
        return
    beat = table("worker", column("heartbeat_at"))
    is_alive = func.abs(DatabaseNow() - beat.c.heartbeat_at) <= _WORKER_GONE_SECONDS
    if connection.execute(select(func.count()).select_from(beat).where(is_alive)).scalar_one():
        raise ConfigurationError("A process still uses the database: stop every process first.")
    losses = () if may_drop else _losses(connection, current, revision)
    if losses:
        raise ConfigurationError(
            f"Going back to {revision} deletes for good: {', '.join(losses)}. Nothing is changed yet. Make a backup, "
            "and repeat it with --yes."
        )
    command.downgrade(config, revision)


def refuse_unknown(revision: str | None) -> None:
    """Raises ConfigurationError if this version of the program does not know the revision."""
    if revision is None or revision == HEAD:
        return
    known = _known_revisions()
    if revision < known[0]:
        raise ConfigurationError(
            f"The database is older than the first release (revision {revision}), and this version cannot upgrade it."
        )
    if revision not in known:
        raise ConfigurationError(
            f"The database was made by a newer version of Threadhand (revision {revision}); update the program, or go"
            f" back with `threadhand migrate --to {HEAD}` of the newer version."
        )


def _known_revisions() -> list[str]:
    """Returns the revisions, oldest first. Their names are in alphabetical order."""
    return sorted(one.revision for one in _scripts())


def _losses(connection: Connection, current: str, revision: str) -> tuple[str, ...]:
    """Returns what going back deletes, with the number of its rows. A revision says in `DROPS` what only it and newer
    ones know: the words, and the table with the condition that selects its rows."""
    dropped = [
        one.module.DROPS for one in _scripts() if revision < one.revision <= current and "DROPS" in vars(one.module)
    ]
    counts = [(connection.execute(text(f"SELECT count(*) FROM {rows}")).scalar_one(), words) for words, rows in dropped]  # noqa: S608 - both are constants of the revisions
    return tuple(f"{count:,} {words}" for count, words in counts if count)


def _scripts() -> "Iterator[Script]":
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config()).walk_revisions()


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
