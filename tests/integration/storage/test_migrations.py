"""The schema in code and the schema in the database are the same, on each database."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, text
from sqlalchemy.dialects.postgresql import TSVECTOR

import storage.migrations
from core.domain.errors import ConfigurationError
from core.failpoints import Failpoint
from storage.sql.database import Database, _connect, _parse, migrate, open_database
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


LETTERS = ("a", "b")
"""There are two rows in each table: one with every value, one with NULL wherever it may be."""

DROPPED = frozenset({"knowledge_entry.head", "pending_ask.expires_at"})
"""Columns that a newer version no longer has."""

Rows = dict[str, list[dict[str, object]]]


def revisions() -> list[str]:
    """Oldest first; the newest is where they all come to."""
    scripts = ScriptDirectory.from_config(storage.migrations._config()).walk_revisions()
    return [script.revision for script in scripts][::-1]


EACH_REVISION = revisions()


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Database]:
    """Open, and not migrated."""
    async with close_after(_connect(_parse(url))) as database:
        yield database


async def made(url: str, revision: str) -> Rows:
    """A database of that revision with rows in every table; answers them as the database has them."""

    def make(connection: sa.Connection) -> Rows:
        config = storage.migrations._config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        for table in tables(connection):
            for number, letter in enumerate(LETTERS, start=1):
                connection.execute(table.insert(), values(table, letter, number))
        return rows(connection)

    async with connected(url) as database:
        return await database.write(TEST, make)


def tables(connection: sa.Connection) -> list[sa.Table]:
    """What the migrations have made so far, parents first."""
    found = sa.MetaData()
    found.reflect(connection, only=lambda name, _: not name.startswith((*UNMANAGED_NAME_PREFIXES, "alembic_version")))
    return list(found.sorted_tables)


def values(table: sa.Table, letter: str, number: int) -> dict[str, object]:
    return {
        column.name: None if column.nullable and letter == "b" else value(table, column, letter, number)
        for column in table.columns
    }


def value(table: sa.Table, column: sa.Column[object], letter: str, number: int) -> object:
    """Something that fits; a reference names the row of the other table with the same letter."""
    for key in column.foreign_keys:
        return value(key.column.table, key.column, letter, number)
    makers = (
        (TSVECTOR, f"'{letter}':1"),
        (sa.JSON, {"said": [number, "ünï ☃ 中文"]}),
        (sa.Boolean, True),
        (sa.Integer, number),
        (sa.Numeric, number + 0.5),
        (sa.Float, number + 0.5),
        (sa.DateTime, datetime(2026, 1, number, 12, 30, 15, 250_000, tzinfo=UTC)),
        (sa.LargeBinary, bytes([0, number, 255])),
    )
    text = f"{table.name} {column.name} {letter} ünï ☃"
    return next((made for kind, made in makers if isinstance(column.type, kind)), text)


def rows(connection: sa.Connection) -> Rows:
    return {
        table.name: [
            dict(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings()
        ]
        for table in tables(connection)
    }


@pytest.mark.parametrize("revision", EACH_REVISION)
async def test_every_row_of_an_earlier_version_is_still_there(new_url: str, revision: str) -> None:
    before = await made(new_url, revision)
    assert all(len(held) == len(LETTERS) for held in before.values())
    assert {"thread", "run", "message", "tool_call", "usage", "delivery"} <= set(before)
    async with close_after(await open_database(new_url)) as database:
        after = await database.read(rows)
        differences = await database.read(_differences)
    assert differences == []
    for name, held in before.items():
        columns = [column for column in held[0] if f"{name}.{column}" not in DROPPED]
        old, new = ([[row[column] for column in columns] for row in rows] for rows in (held, after[name]))
        assert new == old, name


def _differences(connection: sa.Connection) -> list[object]:
    options = {
        "compare_type": True,
        "include_name": lambda name, _kind, _parents: not (name or "").startswith(UNMANAGED_NAME_PREFIXES),
    }
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))


async def test_a_migration_that_fails_leaves_the_old_version_whole(new_url: str, tmp_path: Path) -> None:
    """What is in the way: a column of the next version's name."""
    before = await made(new_url, EACH_REVISION[0])
    clash = sa.text("ALTER TABLE thread_input ADD COLUMN author_time_zone INTEGER")
    async with connected(new_url) as database:
        await database.write(TEST, lambda c: c.execute(clash).close())
    with pytest.raises(Exception, match="author_time_zone"):
        await open_database(new_url)
    async with connected(new_url) as database:
        after = await database.read(rows)
        revision = await database.read(storage.migrations._revision)
    assert revision == EACH_REVISION[0]
    assert after.keys() == before.keys()
    assert_kept = [
        row.items() <= after[name][index].items() for name in before for index, row in enumerate(before[name])
    ]
    assert all(assert_kept)
