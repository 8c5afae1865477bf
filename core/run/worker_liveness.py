"""Detects dead workers on this machine. Each worker holds a lock on its own file while it runs.

The kernel releases the lock when the process ends, even after a crash, and never earlier. Only workers of the same
machine and boot are checked, because machines may share the folder over a file system that does not share locks.
"""

import asyncio
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

LOCK_RETRY_SECONDS = 0.05
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def new_worker_id() -> str:
    """Returns a unique worker ID. The IDs of one machine and boot share a prefix."""
    return f"{_machine_prefix()}-{os.getpid()}-{new_id()[-6:]}"


def is_from_this_host(worker_id: str) -> bool:
    """Whether a worker ID was created on this machine, in this boot or an earlier one."""
    return worker_id.rsplit("-", 3)[0] == socket.gethostname() and worker_id.count("-") >= 3


@asynccontextmanager
async def register_worker(folder: Path, worker_id: str, claims: RunClaims) -> AsyncGenerator[None, None]:
    """Context manager: the worker counts as alive inside the block.

    First releases the leases of dead workers on this machine, without waiting for their heartbeats to expire. If files
    cannot be locked, dead workers are detected only by their heartbeats. Raises ConfigurationError if the database
    cannot be used.
    """
    with _lock_dead_workers(folder) as names:
        for name in names:
            log.info("worker %s was killed; its runs continue here", name)
            try:
                await claims.remove_worker(name)
            except StorageUnavailable as error:
                raise ConfigurationError(f"The database cannot be used: {error}") from error
    async with _hold_lock(folder, worker_id):
        yield
    try:
        await claims.remove_worker(worker_id)
    except StorageUnavailable as error:
        log.warning("the end of this worker could not be recorded: %s", error)


@asynccontextmanager
async def _hold_lock(folder: Path, worker_id: str) -> AsyncGenerator[None, None]:
    path = folder / worker_id
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("files cannot be locked, so a dead worker is noticed by its heartbeat only: %s", error.strerror)
        yield
        return
    try:
        await lock_file(lock)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


async def lock_file(descriptor: int) -> None:
    """Locks an open file. Waits while another process holds the lock, without holding up the event loop."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(LOCK_RETRY_SECONDS)
        else:
            return


@contextmanager
def _lock_dead_workers(folder: Path) -> Generator[tuple[str, ...], None, None]:
    """Context manager: yields the IDs of dead workers and deletes their files at the end.

    Holds their locks inside the block, so that a worker that has created but not yet locked its file waits.
    """
    prefix = f"{_machine_prefix()}-"
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.startswith(prefix))
    except OSError:
        names = []
    locks = {name: lock for name in names if (lock := acquire_stale_lock(folder / name)) >= 0}
    try:
        yield tuple(locks)
        for name in locks:
            (folder / name).unlink(missing_ok=True)
    finally:
        for lock in locks.values():
            os.close(lock)


def acquire_stale_lock(path: Path) -> int:
    """Locks the file of a process that has ended. Returns the file descriptor, or -1 if the process is alive."""
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


def _machine_prefix() -> str:
    name = socket.gethostname()
    try:
        boot = BOOT_ID_PATH.read_text("ascii").strip()
    except OSError:
        boot = ""
    return f"{name}-{hashlib.sha256(f'{name} {boot}'.encode()).hexdigest()[:8]}"
