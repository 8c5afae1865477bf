"""The schema in code and the schema in the database are the same, on each database."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, text

import storage.migrations
from core.domain.errors import ConfigurationError
from core.failpoints import Failpoint
from storage.sql.database import migrate, open_database
from storage.sql.full_text import UNMANAGED_NAME_PREFIXES
from storage.sql.tables import METADATA
from tests.support.closing import close_after

TEST = Failpoint("test.migrations")


def test_the_newest_revision_is_the_one_that_the_program_knows() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(storage.migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == storage.migrations.HEAD


def test_every_reference_to_another_row_has_an_index() -> None:
    """Without one, what hangs on a thread is found, and deleted with it, by reading a whole table."""
    unfound = {
        f"{table.name}.{key.parent.name}"
        for table in METADATA.tables.values()
        for key in table.foreign_keys
        if key.parent.name not in columns_looked_up_by(table)
    }
    assert unfound == set()


def columns_looked_up_by(table: Table) -> set[str]:
    """The first columns of what finds any row of the table."""
    whole = [one for one in table.indexes if one.dialect_options["sqlite"]["where"] is None]
    return {next(iter(one.columns)).name for one in (table.primary_key, *whole)}


def is_of_both_databases(name: str | None, _kind: str, _parents: object) -> bool:
    return not (name or "").startswith(UNMANAGED_NAME_PREFIXES)


async def test_migrating_leaves_nothing_to_migrate(
    new_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await migrate(new_url)
    await migrate(new_url)

    def differences(connection: Connection) -> list[object]:
        options = {"compare_type": True, "include_name": is_of_both_databases}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, METADATA))

    async with close_after(await open_database(new_url)) as database:
        assert await database.write(TEST, differences) == []


async def test_programs_that_start_at_once_migrate_once(new_url: str) -> None:
    databases = await asyncio.gather(*(open_database(new_url) for _ in range(4)))
    try:
        for database in databases:
            rows = await database.read(lambda c: c.execute(text("SELECT version_num FROM alembic_version")).all())
            assert [tuple(row) for row in rows] == [(storage.migrations.HEAD,)]
    finally:
        for database in databases:
            await database.close()


@pytest.mark.parametrize(
    ("revision", "reason"),
    [
        ("9999", r"newer version of Threadhand \(revision 9999\)"),
        ("0020", r"older than the first release \(revision 0020\)"),
    ],
)
async def test_a_database_of_an_unknown_version_is_refused(new_url: str, revision: str, reason: str) -> None:
    database = await open_database(new_url)
    unknown = text("UPDATE alembic_version SET version_num = :revision")
    await database.write(TEST, lambda c: c.execute(unknown, {"revision": revision}).close())
    await database.close()
    with pytest.raises(ConfigurationError, match=reason):
        await open_database(new_url)


async def test_a_file_of_a_newer_version_stays_as_it_is_to_the_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        made.execute("INSERT INTO alembic_version VALUES ('9999')")
        made.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="newer version"):
        await open_database(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["newer.db"]
