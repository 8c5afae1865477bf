"""The database: files and servers, their connections, and what PostgreSQL alone does."""

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from core.domain.errors import ConfigurationError, StorageUnavailable
from core.failpoints import Failpoint
from core.tasks import cancel, spawn
from storage.sql.database import Database, Work, open_database
from storage.sql.drivers import asyncpg_connection, await_in_greenlet
from storage.sql.postgresql import PostgresqlDatabase
from storage.sql.sqlite import SqliteDatabase
from storage.sql.stores.run_claims import SqlRunClaims
from tests.contracts.stores import JournalEntry, Stores, added, stores_over, told
from tests.ports import port_of
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


async def test_a_lost_server_raises_one_clean_error(postgresql_url: str) -> None:
    async with close_after(await open_database(postgresql_url)) as database:

        def work(connection: Connection) -> None:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        with pytest.raises(StorageUnavailable):
            await database.write(TEST, work)
        alive = await database.read(lambda c: c.execute(text("SELECT 1")).scalar_one())
        assert alive == 1


@pytest.mark.parametrize("statement", ["SELECT CAST(:value AS int)", "SELECT CAST(CAST(:value AS text) AS int)"])
async def test_a_value_that_does_not_fit_is_not_quoted(postgresql_url: str, statement: str) -> None:
    async with close_after(await open_database(postgresql_url)) as database:
        with pytest.raises(StorageUnavailable) as raised:
            await database.read(lambda c: c.execute(text(statement), {"value": "private"}).close())
        assert "private" not in str(raised.value)
        assert "SQLSTATE 22" in str(raised.value)


async def test_connections_that_broke_while_nobody_used_them_are_not_noticed(postgresql_url: str) -> None:
    database, other = await open_database(postgresql_url), await open_database(postgresql_url)
    others = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )

    async def one(work: Callable[[Work[int]], Awaitable[int]]) -> int:
        return await work(lambda c: int(c.execute(text("SELECT 1")).scalar_one()))

    async def several() -> list[int]:
        return await asyncio.gather(
            *(one(partial(database.write, TEST)) for _ in range(4)), *(one(database.read) for _ in range(4))
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
    async with close_after(await open_database(postgresql_url)) as database:
        works = 0

        def work(connection: Connection) -> None:
            nonlocal works
            works += 1
            connection.execute(text("SELECT 1"))
            connection.connection.driver_connection.terminate()

        with pytest.raises(StorageUnavailable):
            await database.write(TEST, work)
        assert works == 1


async def test_a_server_that_falls_silent_is_not_waited_for_for_ever(postgresql_url: str) -> None:
    address, is_open = make_url(postgresql_url), asyncio.Event()
    is_open.set()
    server = Path(str(address.query["host"])) / ".s.PGSQL.5432"
    async with port_of(server, is_open=is_open) as port:
        url = address.set(drivername="postgresql+asyncpg", host="127.0.0.1", port=port, query={})
        database = PostgresqlDatabase(url, answer_seconds=3)

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


@pytest.mark.parametrize("limit", ["answer_seconds", "transaction_seconds"])
async def test_a_long_transaction_has_the_time_that_it_needs(postgresql_url: str, limit: str) -> None:
    url = make_url(postgresql_url).set(drivername="postgresql+asyncpg")
    async with close_after(PostgresqlDatabase(url, **{limit: 0.2})) as database:
        sleep = text("SELECT pg_sleep(0.5)")
        with pytest.raises(StorageUnavailable):
            await database.write(TEST, lambda c: c.execute(sleep).close())
        await database.write(TEST, lambda c: c.execute(sleep).close(), is_long=True)


async def test_a_transaction_that_swallowed_a_fault_is_not_taken_for_stored(postgresql_url: str) -> None:
    async with close_after(await open_database(postgresql_url)) as database:

        def work(connection: Connection) -> None:
            with suppress(DBAPIError):
                connection.execute(text("SELECT 1 / 0"))

        with pytest.raises(StorageUnavailable):
            await database.write(TEST, work)


async def test_whoever_is_cancelled_in_a_transaction_leaves_nothing_locked(postgresql_url: str) -> None:
    database, is_locked = await open_database(postgresql_url), asyncio.Event()
    lock = text("SELECT pg_advisory_xact_lock(7)")

    def hold(connection: Connection) -> None:
        connection.execute(lock).close()
        is_locked.set()
        connection.execute(text("SELECT pg_sleep(600)")).close()

    try:
        holding = spawn(database.write(TEST, hold), name="hold")
        await is_locked.wait()
        await cancel(holding)
        async with asyncio.timeout(30):
            await database.write(TEST, lambda c: c.execute(lock).close())
        assert await database.read(lambda c: int(c.execute(text("SELECT 1")).scalar_one())) == 1
    finally:
        await database.close()


async def test_more_transactions_than_connections_take_turns(postgresql_url: str) -> None:
    url = make_url(postgresql_url).set(drivername="postgresql+asyncpg")
    async with close_after(PostgresqlDatabase(url, connections_max=2)) as database:
        backends = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"

        async def one() -> int:
            return await database.read(lambda c: int(c.execute(text(backends)).scalar_one()))

        before = await one()
        assert max(await asyncio.gather(*(one() for _ in range(20)))) <= before + 1


@pytest.mark.parametrize("is_preparing", [False, True])
async def test_a_process_that_freezes_in_a_transaction_lets_go_of_its_locks(
    postgresql_url: str, *, is_preparing: bool
) -> None:
    """Between a statement's preparation and its execution the server waits for more of it, and takes nobody as idle."""
    url = make_url(postgresql_url).set(drivername="postgresql+asyncpg")
    is_asleep, may_wake = Event(), Event()
    works = 0

    def work(connection: Connection) -> None:
        nonlocal works
        works += 1
        connection.execute(text("SELECT pg_advisory_xact_lock(7)"))
        if works == 1:
            if is_preparing:
                await_in_greenlet(cast(Any, asyncpg_connection(connection)).prepare("SELECT 2"))
            is_asleep.set()
            may_wake.wait(60)  # and its whole loop with it
        connection.execute(text("SELECT 1"))

    async def freeze() -> None:
        async with close_after(PostgresqlDatabase(url, idle_seconds=0.5, transaction_seconds=1)) as database:
            await database.write(TEST, work)

    other = PostgresqlDatabase(url)
    sleeper = spawn(asyncio.to_thread(lambda: asyncio.run(freeze())), name="sleeper")
    try:
        await asyncio.to_thread(is_asleep.wait, 60)
        async with asyncio.timeout(30):
            await other.write(TEST, lambda c: c.execute(text("SELECT pg_advisory_xact_lock(7)")).close())
        assert works == 1
        may_wake.set()
        await sleeper
        assert works == 2, "what it was about is done once it is awake"
    finally:
        may_wake.set()
        await other.close()


async def test_a_heartbeat_does_not_wait_for_transactions_that_wait_for_a_lock(postgresql_url: str) -> None:
    """Otherwise the runs of a healthy worker are taken from it."""
    database = PostgresqlDatabase(make_url(postgresql_url).set(drivername="postgresql+asyncpg"), connections_max=2)
    held, release = Event(), Event()

    def hold(connection: Connection) -> None:
        connection.execute(text("LOCK TABLE thread IN ACCESS EXCLUSIVE MODE"))
        held.set()
        await_in_greenlet(asyncio.to_thread(release.wait))

    def wait(connection: Connection) -> None:
        connection.execute(text("SELECT count(*) FROM thread")).close()

    try:
        busy = [spawn(database.write(TEST, hold), name="holds the lock")]
        await asyncio.to_thread(held.wait)
        busy.append(spawn(database.write(TEST, wait), name="waits for it"))
        async with asyncio.timeout(30):
            await SqlRunClaims(database).heartbeat("healthy")
        assert not any(one.done() for one in busy)
        release.set()
        await asyncio.gather(*busy)
    finally:
        release.set()
        await database.close()


async def test_a_lock_that_stays_is_not_waited_for_long(postgresql_url: str) -> None:
    url = make_url(postgresql_url).set(drivername="postgresql+asyncpg")
    database = PostgresqlDatabase(url, lock_seconds=0.1)
    held, release = Event(), Event()

    def hold(connection: Connection) -> None:
        connection.execute(text("LOCK TABLE thread IN ACCESS EXCLUSIVE MODE"))
        held.set()
        await_in_greenlet(asyncio.to_thread(release.wait))

    try:
        holding = spawn(database.write(TEST, hold), name="holds the lock")
        await asyncio.to_thread(held.wait)
        with pytest.raises(StorageUnavailable):
            await database.read(lambda c: c.execute(text("SELECT * FROM thread")).close())
        release.set()
        await holding
    finally:
        release.set()
        await database.close()
