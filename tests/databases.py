"""Fresh databases for tests: a copied file for SQLite, one emptied database per test process for PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import text

from core.failpoints import Failpoint
from storage.sql.database import Database, migrate, open_database
from storage.sql.tables import METADATA
from tests.servers import postgresql, redis
from tests.support.closing import close_after

_EMPTY = Failpoint("test.empty")


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A database with the newest schema, shared by the tests of this process one after another."""
    with postgresql() as url_of:
        asyncio.run(migrate(url_of("postgres")))
        yield url_of("postgres")


@cache
def empty_sqlite_file() -> bytes:
    """Returns a database with the newest schema and no rows. Migrating a new file takes 80 ms."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        path = Path(folder) / "empty.db"
        thread.submit(asyncio.run, migrate(f"sqlite:///{path}")).result()
        return path.read_bytes()


async def open_sqlite(path: Path) -> Database:
    """Opens the database in the file, which is made if it is missing."""
    if not path.exists():
        path.write_bytes(empty_sqlite_file())
    return await open_database(f"sqlite:///{path}")


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A Redis for the tests of a module."""
    with redis() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    (tmp_path / "test.db").write_bytes(empty_sqlite_file())
    return f"sqlite:///{tmp_path}/test.db"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as fresh:
        yield fresh


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Open and empty."""
    async with close_after(await open_database(url)) as database:
        await empty(database)
        yield database


async def empty(database: Database) -> None:
    """Deletes every row of every table."""
    names = [table.name for table in reversed(METADATA.sorted_tables)]
    for name in names:
        await database.write(
            _EMPTY,
            lambda c, name=name: c.execute(text(f'DELETE FROM "{name}"')).close(),  # noqa: S608 - our own tables
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database that nobody has opened."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/new.db"
        return
    url: str = request.getfixturevalue("postgresql_url")
    name = f"new_{uuid4().hex}"
    asyncio.run(_administer(url, f"CREATE DATABASE {name}"))
    yield url.replace("/postgres?", f"/{name}?")
    asyncio.run(_administer(url, f"DROP DATABASE {name} WITH (FORCE)"))


async def _administer(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
