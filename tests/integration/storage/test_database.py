"""Opening a database, and what becomes of its faults."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from core.domain.errors import ConfigurationError, StorageUnavailable
from core.failpoints import Failpoint
from storage.sql.database import Database, open_database
from tests.contracts.stores import JournalEntry, Stores, added, stores_over, told
from tests.servers import NOBODY
from tests.support.closing import close_after

TEST = Failpoint("test.database")


async def _refusal(url: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        await open_database(url)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://host/name", "mysql is not supported"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("postgresql://u@localhost/x?channel_binding=require", "channel_binding"),
    ],
)
async def test_a_url_that_cannot_work_is_refused_in_one_sentence(url: str, said: str) -> None:
    assert said in await _refusal(url)


async def test_an_unreachable_server_is_told_without_the_password() -> None:
    sentence = await _refusal("postgresql://bob:secret@127.0.0.1:1/name")
    assert "cannot be used" in sentence
    assert "secret" not in sentence


async def test_an_unknown_database_or_user_is_told(postgresql_url: str) -> None:
    assert "does not exist" in await _refusal(postgresql_url.replace("/postgres?", "/nowhere?"))
    assert "does not exist" in await _refusal(postgresql_url.replace("postgres@", "nobody@"))


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("these are no pages of a database " * 100)
    assert "not a database" in await _refusal(f"sqlite:///{tmp_path}/x.db")


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be made" in await _refusal(f"sqlite:///{tmp_path}/file/x.db")


@contextmanager
def _as_nobody() -> Iterator[Path]:
    """A folder with a database of ours, seen by somebody who may not write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
        Path(folder).chmod(0o755)


async def test_a_file_that_cannot_be_written_is_told() -> None:
    with _as_nobody() as folder:
        await (await open_database(f"sqlite:///{folder}/x.db")).close()
        (folder / "x.db").chmod(0o444)
        folder.chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)
        try:
            sentence = await _refusal(f"sqlite:///{folder}/x.db")
        finally:
            if is_root:
                os.seteuid(0)
    assert "cannot be used" in sentence


async def test_what_people_said_is_for_the_program_alone(tmp_path: Path) -> None:
    database = await open_database(f"sqlite:///{tmp_path}/x.db")
    rights = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    await database.close()
    assert set(rights.values()) == {"0o600"}
    assert "x.db-wal" in rights


async def test_sqlite_runs_with_the_promised_settings(tmp_path: Path) -> None:
    async with close_after(await open_database(f"sqlite:///{tmp_path}/x.db")) as database:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")

        def work(connection: Connection) -> list[object]:
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names]

        assert await database.write(TEST, work) == ["wal", 1, 1, 10_000]
        assert await database.read(work) == ["wal", 1, 1, 10_000]


async def test_a_full_database_raises_one_clean_error_and_rolls_back(tmp_path: Path) -> None:
    async with close_after(await open_database(f"sqlite:///{tmp_path}/x.db")) as database:
        stores = stores_over(database)
        lease = await stores.started()
        await stores.journal.write(lease, added(lease, 1, "kept"))
        await _limit_pages(database, extra=4)
        big = tuple(told(lease, "x" * 2000) for _ in range(50))
        with pytest.raises(StorageUnavailable, match="full"):
            await stores.journal.write(lease, JournalEntry(messages=big))
        assert len(await stores.conversations.messages(lease.thread_id)) == 1
        await _limit_pages(database, extra=1000)
        await stores.journal.write(lease, added(lease, 2, "goes on"))
        sequences = [m.sequence for m in await stores.conversations.messages(lease.thread_id)]
        assert sequences == [1, 2]


async def _limit_pages(database: Database, *, extra: int) -> None:
    def work(connection: Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + extra}").close()

    await database.write(TEST, work)


async def test_an_exception_of_the_work_rolls_back_and_passes_through(database: Database) -> None:
    def work(connection: Connection) -> None:
        connection.execute(text("INSERT INTO worker VALUES ('w', 1)"))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await database.write(TEST, work)
    assert await Stores.count(stores_over(database), "worker") == 0


async def test_a_cancelled_writer_leaves_the_database_usable(database: Database) -> None:
    stores = stores_over(database)
    for _ in range(20):
        writing = asyncio.ensure_future(stores.claims.heartbeat("w"))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
    await stores.claims.heartbeat("w2")
    assert await stores.count("worker WHERE worker_id = 'w2'") == 1


async def test_a_closed_database_says_so(tmp_path: Path) -> None:
    database = await open_database(f"sqlite:///{tmp_path}/x.db")
    await database.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        await stores_over(database).claims.heartbeat("w")
