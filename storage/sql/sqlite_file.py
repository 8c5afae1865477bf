"""What an SQLite file needs beside its transactions: syncing them to disk, and a check for damage at the start."""

import fcntl
import logging
import os
import shutil
import sqlite3
import struct
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from core.domain.errors import ConfigurationError

log = logging.getLogger(__name__)


class WalSync:
    """Syncs committed transactions to disk. Transactions that wait at the same time share one sync.

    SQLite itself could sync at each commit (`synchronous = FULL`), but then each transaction would wait for the disk
    before the next one begins."""

    def __init__(self, path: str) -> None:
        self._path = Path(f"{path}-wal")
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="storage-sync")
        self._descriptor: int | None = None
        self._lock = threading.Lock()
        self._next: Future[None] | None = None
        self._error: OSError | None = None

    def begin_sync(self) -> Future[None]:
        """Returns the sync of all transactions committed so far. It raises OSError if the disk fails.

        The writing thread calls this, so that the sync runs while the event loop wakes up."""
        with self._lock:
            if self._next is None:
                self._next = self._executor.submit(self._sync)
            return self._next

    def close(self) -> None:
        """Waits for the syncs that have begun."""
        self._executor.shutdown()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _sync(self) -> None:
        with self._lock:
            self._next = None  # transactions that commit from now on need another sync
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                sync_folder(self._path.parent)
            if sys.platform == "darwin":
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            # a later sync can succeed although the kernel has dropped the pages that it could not write
            self._error = self._error or error
        if self._error is not None:
            raise self._error


def sync_folder(folder: Path) -> None:
    """Makes the names of new files in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


CHECK_SECONDS_MAX = 1.0
"""A file that takes longer is checked only in part."""
_CHECK_STEPS = 10_000
LOCK_SECONDS_MAX = 5.0
"""How long the check waits for another process that writes to the file."""
_WAL_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")


def check_file(path: str) -> str | None:
    """Checks a database file and its write-ahead log before they are used. Returns the schema revision, if there is
    one.

    Raises ConfigurationError if the file is damaged. If a part of the log cannot be read, logs an error that says how
    much is lost, and keeps a copy of the log. Other errors are ignored, because opening the database reports them."""
    address = f"{Path(path).absolute().as_uri()}?mode=rw"  # does not create a missing file
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as opened:
            _check_log(opened, path)
            damage = _damage(opened)
            if not damage:
                with suppress(sqlite3.OperationalError):
                    row = opened.execute("SELECT version_num FROM alembic_version").fetchone()
                    return str(row[0]) if row else None
                return None
    except sqlite3.Error as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return None
        damage = str(error)
    raise ConfigurationError(
        f"The database {path} is damaged ({damage}). Restore a backup, or save what can be read with "
        "`sqlite3 FILE .recover` (docs/operators/operations.md)."
    )


def _damage(opened: sqlite3.Connection) -> str:
    """Returns the first damage that is found within the time, or an empty string."""
    deadline = time.monotonic() + CHECK_SECONDS_MAX
    opened.set_progress_handler(lambda: time.monotonic() > deadline, _CHECK_STEPS)
    try:
        found = str(opened.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        log.info("the database was checked for %g s and not to its end", CHECK_SECONDS_MAX)
        return ""
    finally:
        opened.set_progress_handler(None, 0)
    return "" if found == "ok" else " ".join(found.split())


def _check_log(opened: sqlite3.Connection, path: str) -> None:
    """Logs an error and copies the log if SQLite cannot read all transactions in it."""
    if not _log_state(opened, path)[1]:
        return
    # another process may be writing a transaction just now; it cannot while this one holds the lock
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS_MAX, isolation_level=None)) as writer:
        try:
            writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            log.info("the log of %s was not checked: another process kept writing to it", path)
            return
        readable, lost = _log_state(opened, path)
        if not lost:
            return
        kept = f"{path}-wal.damaged-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        shutil.copy2(f"{path}-wal", kept)
    log.error(
        "The write-ahead log of %s is damaged behind frame %d: %d transactions cannot be read. After a power cut,"
        " these can be transactions that nobody was told of as stored; otherwise the disk is faulty, and data is lost:"
        " restore a backup (docs/operators/operations.md). A copy of the log is kept in %s.",
        *(path, readable, lost, kept),
    )


def _log_state(opened: sqlite3.Connection, path: str) -> tuple[int, int]:
    """Returns how many frames of the log SQLite can read, and how many transactions end behind them."""
    commits = _frames_with_commits(path)
    is_busy, readable, _ = opened.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return readable, 0 if is_busy else sum(number > readable for number in commits)


def _frames_with_commits(path: str) -> list[int]:
    """Returns the numbers, from 1, of the frames that end a transaction, of those that belong to the newest start of
    the write-ahead log. Includes frames behind a damaged one, which SQLite does not read."""
    try:
        content = Path(f"{path}-wal").read_bytes()
        with Path(path).open("rb") as file:
            page_size = int.from_bytes(file.read(18)[16:])
    except OSError:
        return []
    step = _FRAME_HEADER.size + (65_536 if page_size == 1 else page_size)
    places = range(_WAL_HEADER.size, len(content) - step + 1, step)
    if not places or page_size < 512:
        return []
    header = _WAL_HEADER.unpack_from(content)
    # with a damaged header, SQLite reads nothing; the frames then tell which start they belong to
    salts = header[4:6] if _is_header_whole(content) else _FRAME_HEADER.unpack_from(content, places[0])[2:4]
    found = [_FRAME_HEADER.unpack_from(content, place) for place in places]
    return [
        number
        for number, (_, pages_after_commit, *rest) in enumerate(found, start=1)
        if pages_after_commit and tuple(rest[:2]) == salts
    ]


def _is_header_whole(content: bytes) -> bool:
    """Returns whether the checksum in the log's header is right."""
    magic, *_, sum_0, sum_1 = _WAL_HEADER.unpack_from(content)
    words = struct.unpack_from(">6I" if magic & 1 else "<6I", content)
    left = right = 0
    for word_0, word_1 in zip(words[::2], words[1::2], strict=True):
        left = (left + word_0 + right) & 0xFFFFFFFF
        right = (right + word_1 + left) & 0xFFFFFFFF
    return (left, right) == (sum_0, sum_1)
