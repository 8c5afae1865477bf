"""A new SQLite file to which many come at the same moment."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from storage.sql.sqlite import SqliteDatabase

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
