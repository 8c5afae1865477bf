"""A power cut: what was not synced is lost, and what the program has acknowledged is still there."""

import asyncio
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import text

from core.domain.errors import ConfigurationError
from storage.sql.database import open_database
from storage.sql.sqlite_file import check_file
from tests.contracts.stores import stores_over
from tests.paths import REPOSITORY
from tests.requirements_of_the_machine import lacking
from tests.support.closing import close_after

RUNS = 8
FRAME_BYTES = 24 + 4096
PROGRAM = f"""
import asyncio, os, signal, sys
from core.failpoints import Failpoint
from storage.sql.database import open_database
from tests.contracts.stores import stores_over

def acknowledge(fact):
    journal = os.open(os.environ["DISK_JOURNAL"], os.O_WRONLY | os.O_APPEND)
    os.write(journal, b"A" + len(fact).to_bytes(8, sys.byteorder) + bytes(16) + fact.encode())
    os.close(journal)

async def main():
    database = await open_database(sys.argv[1])
    small = lambda c: c.exec_driver_sql("PRAGMA wal_autocheckpoint = 40").close()
    await database.write(Failpoint("test.power"), small)
    stores = stores_over(database)
    for number in range({RUNS}):
        receipt = await stores.say(f"message {{number}}")
        acknowledge(f"accepted {{receipt.run_id}}")
        lease = await stores.claims.claim(receipt.run_id, "w1")
        acknowledge(f"claimed {{receipt.run_id}}")
        await stores.finish(lease)
        acknowledge(f"finished {{receipt.run_id}}")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
_NUMBERS = struct.Struct("=QQQ")
_HOLDS = {
    "accepted": "SELECT count(*) FROM run WHERE run_id = :run",
    "claimed": "SELECT count(*) FROM run WHERE run_id = :run AND status <> 'queued'",
    "finished": "SELECT count(*) FROM run WHERE run_id = :run AND status = 'completed'",
}


@dataclass
class Disk:
    """What a disk holds: synced contents, and the changes since, each of which a power cut may keep or lose."""

    synced: dict[str, bytearray] = field(default_factory=dict[str, bytearray])
    pending: list[tuple[str, str, int, bytes]] = field(default_factory=list[tuple[str, str, int, bytes]])

    def take(self, letter: str, path: str, offset: int, content: bytes) -> None:
        if letter == "U":
            self.synced.pop(path, None)
            self.pending = [change for change in self.pending if change[1] != path]
            return
        if letter != "S":
            self.pending.append((letter, path, offset, content))
            return
        for change in self.pending:
            if change[1] == path:
                _apply(self.synced, change)
        self.pending = [change for change in self.pending if change[1] != path]

    def after_power_cut(self, chance: random.Random | None) -> dict[str, bytearray]:
        """The files after a power cut. Without `chance`, every change that was not synced is lost."""
        files = {path: bytearray(content) for path, content in self.synced.items()}
        for change in self.pending:
            if chance is not None and chance.random() < 0.5:
                _apply(files, change)
        return files


def _apply(files: dict[str, bytearray], change: tuple[str, str, int, bytes]) -> None:
    letter, path, offset, content = change
    file = files.setdefault(path, bytearray())
    if letter == "T":
        del file[offset:]
        return
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(content)] = content


def records(journal: bytes) -> Iterator[tuple[str, str, int, bytes]]:
    at = 0
    while at < len(journal):
        letter = chr(journal[at])
        size, offset, length = _NUMBERS.unpack_from(journal, at + 1)
        name_at = at + 1 + _NUMBERS.size
        at = name_at + size + length
        yield (letter, journal[name_at : name_at + size].decode(), offset, journal[name_at + size : at])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The journal of a process that was killed after its last acknowledgement, and the name of its database."""
    folder = tmp_path_factory.mktemp("power")
    compiler = shutil.which("cc")
    if compiler is None:
        lacking("cc", "there is no C compiler")
    library = folder / "disk_journal.so"
    source = REPOSITORY / "tests" / "fakes" / "disk_journal.c"
    build = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-lpthread"]
    subprocess.run(build, check=True)
    journal, database = folder / "journal", folder / "threadhand.db"
    environment = {**os.environ, "LD_PRELOAD": str(library), "DISK_JOURNAL": str(journal)}  # noqa: TID251 - a child
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{database}"], env=environment, cwd=REPOSITORY, check=False
    )
    assert done.returncode < 0
    return journal.read_bytes(), str(database)


@pytest.mark.parametrize("seed", [None, 1, 2])
async def test_what_was_acknowledged_survives_a_power_cut(
    played: tuple[bytes, str], tmp_path: Path, seed: int | None
) -> None:
    journal, path = played
    chance = None if seed is None else random.Random(seed)
    disk, facts = Disk(), list[str]()
    for letter, name, offset, content in records(journal):
        if letter != "A":
            disk.take(letter, name, offset, content)
            continue
        facts.append(name)
        files = disk.after_power_cut(chance)
        for old, file in files.items():
            (tmp_path / Path(old).name).write_bytes(file)
        assert await missing(f"sqlite:///{tmp_path}/{Path(path).name}", facts) == []
        for file in tmp_path.iterdir():
            file.unlink()
    assert len(facts) == 3 * RUNS


async def missing(url: str, facts: list[str]) -> list[str]:
    async with close_after(await open_database(url)) as database:
        found = [(fact, *fact.split()) for fact in facts]
        return [
            fact
            for fact, kind, run in found
            if not await database.read(
                lambda c, kind=kind, run=run: c.execute(text(_HOLDS[kind]), {"run": run}).scalar_one()
            )
        ]


@pytest.fixture
async def crashed(tmp_path: Path) -> Path:
    """A database whose process was killed, so that its log is not merged into it."""
    database = await open_database(f"sqlite:///{tmp_path}/live.db")
    stores = stores_over(database)
    for number in range(30):
        await stores.say(f"message {number}")
    path = tmp_path / "threadhand.db"
    for ending in ("", "-wal"):
        shutil.copy(f"{tmp_path}/live.db{ending}", f"{path}{ending}")
    await database.close()
    return path


def flip(path: Path, *, offset: int, count: int = 4000) -> None:
    content = bytearray(path.read_bytes())
    end = min(len(content), offset + count)
    content[offset:end] = bytes(one ^ 0xFF for one in content[offset:end])
    path.write_bytes(content)


async def opened_and_closed(path: Path) -> None:
    await (await open_database(f"sqlite:///{path}")).close()


@pytest.mark.parametrize("offset", [0, 100_000])
async def test_a_damaged_log_is_told_and_kept(crashed: Path, caplog: pytest.LogCaptureFixture, offset: int) -> None:
    wal = Path(f"{crashed}-wal")
    flip(wal, offset=offset)
    damaged = wal.read_bytes()
    await opened_and_closed(crashed)
    (told,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert "transactions cannot be read" in told
    assert "restore a backup" in told
    (kept,) = crashed.parent.glob("*damaged-*")
    assert kept.read_bytes() == damaged
    assert str(kept) in told


async def test_a_log_that_ends_in_the_middle_of_a_transaction_is_no_damage(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wal = Path(f"{crashed}-wal")
    wal.write_bytes(wal.read_bytes()[:-5000])
    await opened_and_closed(crashed)
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []
    assert not list(crashed.parent.glob("*damaged-*"))


@pytest.mark.parametrize(("offset", "count"), [(4096 * 3, 4000), (0, 100)])
async def test_a_damaged_file_is_refused_with_the_remedy(tmp_path: Path, offset: int, count: int) -> None:
    path = tmp_path / "threadhand.db"
    await opened_and_closed(path)
    flip(path, offset=offset, count=count)
    with pytest.raises(ConfigurationError, match=r"is damaged \(.*Restore a backup"):
        await opened_and_closed(path)


async def test_the_check_of_a_large_file_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "threadhand.db"
    await opened_and_closed(path)
    with sqlite3.connect(path) as opened:
        opened.execute("CREATE TABLE large (a TEXT)")
        opened.execute(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30000)"
            " INSERT INTO large SELECT hex(randomblob(500)) FROM n"
        )
    monkeypatch.setattr("storage.sql.sqlite_file.CHECK_SECONDS_MAX", 0.0)
    await asyncio.wait_for(opened_and_closed(path), 30)


@pytest.mark.parametrize("held_seconds", [0.2, 30.0])
def test_a_transaction_that_is_just_written_is_not_called_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, held_seconds: float
) -> None:
    """Its frames are in the log, and the process that wrote them has not told the others yet."""
    monkeypatch.setattr("storage.sql.sqlite_file.LOCK_SECONDS_MAX", 1.0)
    path = tmp_path / "used.db"
    wal = Path(f"{path}-wal")
    connect = partial(sqlite3.connect, path, isolation_level=None, check_same_thread=False)
    with closing(connect()) as writer, closing(connect()) as reader:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE note (words TEXT)")
        reader.execute("SELECT * FROM note")
        writer.execute("BEGIN IMMEDIATE")
        told = wal.read_bytes()
        # a further frame with the commit mark of the last
        wal.write_bytes(told + told[-FRAME_BYTES:])

        def end() -> None:
            wal.write_bytes(told)
            writer.execute("ROLLBACK")

        timer = threading.Timer(held_seconds, end)
        timer.start()
        check_file(str(path))
        timer.cancel()
        timer.join()
        assert not [one for one in caplog.records if one.levelname == "ERROR"]
        assert not list(tmp_path.glob("*.damaged-*"))
        if held_seconds > 1:
            end()
