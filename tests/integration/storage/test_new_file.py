"""A new SQLite file to which many come at the same moment."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from storage.sql.database import open_database
from storage.sql.sqlite import SqliteDatabase
from storage.sql.stores.conversations import SqlConversations
from tests.support.closing import close_after

ROUNDS = 40
AT_ONCE = 8


async def test_whoever_comes_while_another_changes_the_journal_waits(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        together = threading.Barrier(AT_ONCE)
        path = str(tmp_path / f"{number}.db")
        databases = [SqliteDatabase(path) for _ in range(AT_ONCE)]

        async def come(database: SqliteDatabase, together: threading.Barrier = together) -> None:
            await asyncio.get_running_loop().run_in_executor(database._reading.executor, together.wait)
            await database.read(lambda connection: connection.execute(text("SELECT 1")).all())

        try:
            await asyncio.gather(*map(come, databases))
        finally:
            await asyncio.gather(*(database.close() for database in databases))
        with closing(sqlite3.connect(path)) as opened:
            assert opened.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("made_with_bytes", [None, 4096])
async def test_only_a_new_file_gets_small_pages(tmp_path: Path, made_with_bytes: int | None) -> None:
    path = str(tmp_path / "threadhand.db")
    if made_with_bytes:
        with closing(sqlite3.connect(path)) as earlier:
            earlier.execute(f"PRAGMA page_size = {made_with_bytes}")
            earlier.execute("CREATE TABLE kept (something INTEGER)")
    async with close_after(await open_database(f"sqlite:///{path}")) as database:
        assert await SqlConversations(database).run("none") is None
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("PRAGMA page_size").fetchone() == (made_with_bytes or 2048,)
