"""Connections to PostgreSQL that break: before a transaction, in it, and at its commit."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url

from core.errors import StorageUnavailable
from core.failpoints import Failpoint
from storage.database import Work
from storage.opening import open_database
from storage.postgresql import PostgresqlDatabase

TEST = Failpoint("test.postgresql")


async def test_a_lost_server_raises_one_clean_error(postgresql_url: str) -> None:
    database = await open_database(postgresql_url)

    def work(connection: Connection) -> None:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    try:
        with pytest.raises(StorageUnavailable):
            await database.write(TEST, work)
        alive = await database.read(lambda c: c.execute(text("SELECT 1")).scalar_one())
        assert alive == 1
    finally:
        await database.close()


@pytest.mark.parametrize(
    "statement",
    ["SELECT CAST(:value AS int)", "SELECT CAST(CAST(:value AS text) AS int)"],
)
async def test_a_value_that_does_not_fit_is_not_quoted(postgresql_url: str, statement: str) -> None:
    database = await open_database(postgresql_url)
    try:
        with pytest.raises(StorageUnavailable) as raised:
            await database.read(lambda c: c.execute(text(statement), {"value": "private"}).close())
        assert "private" not in str(raised.value)
        assert "SQLSTATE 22" in str(raised.value)
    finally:
        await database.close()


async def test_connections_that_broke_while_nobody_used_them_are_not_noticed(
    postgresql_url: str,
) -> None:
    database, other = await open_database(postgresql_url), await open_database(postgresql_url)
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )

    async def one(work: Callable[[Work[int]], Awaitable[int]]) -> int:
        return await work(lambda c: int(c.execute(text("SELECT 1")).scalar_one()))

    async def several() -> list[int]:
        return await asyncio.gather(
            *(one(partial(database.write, TEST)) for _ in range(4)),
            *(one(database.read) for _ in range(4)),
        )

    try:
        assert await several() == [1] * 8
        broken = await other.read(lambda c: len(c.execute(text(others)).all()))
        assert broken >= 8
        assert await several() == [1] * 8
    finally:
        await database.close()
        await other.close()


async def test_a_commit_in_doubt_is_not_repeated(postgresql_url: str) -> None:
    database = await open_database(postgresql_url)
    works = 0

    def work(connection: Connection) -> None:
        nonlocal works
        works += 1
        connection.execute(text("SELECT 1"))
        connection.connection.driver_connection.terminate()

    try:
        with pytest.raises(StorageUnavailable):
            await database.write(TEST, work)
        assert works == 1
    finally:
        await database.close()


@asynccontextmanager
async def relay(path: str, is_open: asyncio.Event) -> AsyncGenerator[int, None]:
    """A port before the server's socket; while it is shut nothing comes through, and nobody is told."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(65_536):
                await is_open.wait()
                target.write(piece)
                await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond_reader, beyond_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, beyond_writer), pump(beyond_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_server_that_falls_silent_is_not_waited_for_for_ever(postgresql_url: str) -> None:
    address, is_open = make_url(postgresql_url), asyncio.Event()
    is_open.set()
    async with relay(f"{address.query['host']}/.s.PGSQL.5432", is_open) as port:
        url = address.set(drivername="postgresql+asyncpg", host="127.0.0.1", port=port, query={})
        database = PostgresqlDatabase(url, answer_seconds=1)

        async def one() -> int:
            return await database.read(lambda c: int(c.execute(text("SELECT 1")).scalar_one()))

        try:
            assert await one() == 1
            is_open.clear()
            async with asyncio.timeout(30):
                with pytest.raises(StorageUnavailable):
                    await one()
            is_open.set()
            assert await one() == 1
        finally:
            await database.close()


async def test_a_long_transaction_has_the_time_that_it_needs(postgresql_url: str) -> None:
    url = make_url(postgresql_url).set(drivername="postgresql+asyncpg")
    database = PostgresqlDatabase(url, answer_seconds=0.2)
    sleep = text("SELECT pg_sleep(0.5)")
    try:
        with pytest.raises(StorageUnavailable):
            await database.write(TEST, lambda c: c.execute(sleep).close())
        await database.write(TEST, lambda c: c.execute(sleep).close(), is_long=True)
    finally:
        await database.close()
