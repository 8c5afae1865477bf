"""Connections to PostgreSQL that break: before a transaction, in it, and at its commit."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from sqlalchemy import Connection, text

from core.errors import StorageUnavailable
from core.failpoints import Failpoint
from storage.database import Work
from storage.opening import open_database

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
