"""Which workers of this machine are dead for certain: each holds a lock on a file of its own as long as it lives.

The kernel lets go of the lock when the process ends, however it ends, and never before. A folder may be shared by
several machines over a file system that does not share locks, so only workers of this machine and boot are judged.
"""

import fcntl
import hashlib
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from core.domain.errors import ConfigurationError, StorageUnavailable
from core.domain.ids import new_id
from core.stores import RunClaims

log = logging.getLogger(__name__)

BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def new_worker_id() -> str:
    """Unique for ever; it starts with what all workers of this machine and boot share."""
    return f"{_machine()}-{os.getpid()}-{new_id()[-6:]}"


def is_from_this_host(name: str) -> bool:
    """Whether such an id was made on this machine, at this boot or an earlier one."""
    return name.rsplit("-", 3)[0] == socket.gethostname() and name.count("-") >= 3


@asynccontextmanager
async def register_worker(
    folder: Path, worker_id: str, claims: RunClaims
) -> AsyncGenerator[None, None]:
    """While entered the worker counts as alive. What dead ones of this machine held is free at once, not in seconds.

    Where files cannot be locked, heartbeats alone tell. Raises ConfigurationError where the database is away.
    """
    with _dead(folder) as names:
        for name in names:
            log.info("worker %s ended without a farewell; its work goes on here", name)
            try:
                await claims.remove_worker(name)
            except StorageUnavailable as error:
                raise ConfigurationError(f"The database cannot be used: {error}") from error
    with _locked(folder, worker_id):
        yield
    try:
        await claims.remove_worker(worker_id)
    except StorageUnavailable as error:
        log.warning("the end of this worker is not on record: %s", error)


@contextmanager
def _locked(folder: Path, worker_id: str) -> Generator[None, None, None]:
    path = folder / worker_id
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("workers are told apart by their heartbeats alone: %s", error.strerror)
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


@contextmanager
def _dead(folder: Path) -> Generator[tuple[str, ...], None, None]:
    """Names of dead workers. Their locks are held meanwhile: one that is only just starting waits for the verdict."""
    locks = {
        name: lock for name in _names(folder) if (lock := acquire_stale_lock(folder / name)) >= 0
    }
    try:
        yield tuple(locks)
        for name in locks:
            (folder / name).unlink(missing_ok=True)
    finally:
        for lock in locks.values():
            os.close(lock)


def _names(folder: Path) -> list[str]:
    prefix = f"{_machine()}-"
    try:
        return sorted(path.name for path in folder.iterdir() if path.name.startswith(prefix))
    except OSError:
        return []


def acquire_stale_lock(path: Path) -> int:
    """The lock of a process that is gone, now ours; -1 while it lives."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return -1
    return lock


def _machine() -> str:
    name = socket.gethostname()
    try:
        boot = BOOT_ID_PATH.read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{name}-{hashlib.sha256(f'{name} {boot}'.encode()).hexdigest()[:8]}"
