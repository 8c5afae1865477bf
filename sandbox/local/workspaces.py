"""The threads' folders: private, owned by the uid of their jail, and locked by the process that runs it."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from core.domain.errors import LeaseLost, SandboxUnavailable
from sandbox.local.folder_trees import delete_folder

UIDS = range(30000, 60000)
ARCHIVE = "workspace.tar.gz"
LOCK_TRIES_MAX = 20
LOCK_RETRY_SECONDS = 0.02
RECORD_SECONDS = 10.0  # well below the idle times that stop a sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The process that holds a workspace's lock, as its lock file says: its socket and the sandbox's outermost
    process."""

    socket_name: str = ""
    pid: int = 0


class WorkspaceInUse(SandboxUnavailable):
    """Another process runs the thread's sandbox."""

    def __init__(self, home: Path, holder: LockHolder) -> None:
        super().__init__("The sandbox of this thread is in use by another process.", detail=str(home))
        self.holder = holder


@dataclass(slots=True, kw_only=True)
class Workspace:
    """`lock` is the open lock file; closing it releases the workspace.

    An archived workspace has no folder at `path`."""

    path: Path
    uid: int
    lock: int
    socket_name: str = ""

    @property
    def archive(self) -> Path:
        return self.path.with_name(ARCHIVE)

    @property
    def is_archived(self) -> bool:
        return not self.path.is_dir()

    def create_draft_folder(self) -> Path:
        """Creates an empty folder of the jail's user, to unpack into."""
        draft = self.path.with_name("workspace.new")
        if draft.is_dir():
            delete_folder(draft)
        _make_folder(draft, self.uid)
        return draft

    def remove_folder(self) -> None:
        """Removes the folder atomically, as seen by other processes."""
        gone = self.path.with_name("workspace.gone")
        if gone.is_dir():
            delete_folder(gone)
        self.path.rename(gone)
        delete_folder(gone)

    def set_archive_aside(self) -> None:
        """Renames the corrupt archive, which is kept for the operator, and creates an empty folder."""
        self.archive.rename(self.archive.with_suffix(".broken"))
        _make_folder(self.path, self.uid)

    def record_process(self, pid: int) -> None:
        """Writes the pid of the sandbox to the lock file, for other processes."""
        record = json.dumps({"door": self.socket_name, "pid": pid}).encode()
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, record, 0)

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class Workspaces:
    """The workspaces, each in `<folder>/<thread_id>/workspace`. With `drops_user`, each gets its own uid, which
    requires root."""

    def __init__(self, folder: Path, *, drops_user: bool) -> None:
        self._folder = folder
        self._drops_user = drops_user

    def prepare(self) -> None:
        """Creates the folder; other users can enter but not read it. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._folder.stat().st_uid == os.geteuid():
            self._folder.chmod(0o711)

    def acquire(self, thread_id: str, *, socket_name: str = "") -> Workspace:
        """Locks the thread's workspace. `socket_name` is the socket of this process, for others.

        Raises WorkspaceInUse while another process runs the thread's sandbox."""
        home = self._folder / thread_id
        home.mkdir(exist_ok=True)
        home.chmod(0o711)
        lock = _try_lock(home / "lock")
        if lock < 0:
            raise WorkspaceInUse(home, read_lock_holder(home / "lock"))
        try:
            workspace = Workspace(
                path=home / "workspace",
                uid=self._prepare_folder(home / "workspace"),
                lock=lock,
                socket_name=socket_name,
            )
            workspace.record_process(0)
        except BaseException:
            os.close(lock)
            raise
        return workspace

    def exists(self, thread_id: str) -> bool:
        return (self._folder / thread_id).is_dir()

    def record_fence(self, thread_id: str, fence: int) -> None:
        """Records the newest run that uses the workspace. Raises LeaseLost for an older run, and OSError."""
        home = self._folder / thread_id
        home.mkdir(parents=True, exist_ok=True)
        with _exclusive(home / "fence") as file:
            newest = int(os.pread(file, 20, 0) or b"0")
            if fence < newest:
                raise LeaseLost(f"run {newest} uses the sandbox of {thread_id}, after {fence}")
            os.pwrite(file, str(fence).encode(), 0)

    def break_lock(self, thread_id: str, holder: LockHolder) -> None:
        """Takes the lock from a process that does not respond by unlinking the lock file that it has open.

        The caller has ended what ran in the workspace."""
        home = self._folder / thread_id
        with _exclusive(home / "eviction"):
            if read_lock_holder(home / "lock") == holder:
                (home / "lock").unlink(missing_ok=True)

    def delete(self, thread_id: str) -> None:
        """Deletes the thread's folder if there is one. Its jail must have been stopped."""
        if not self.exists(thread_id):
            return
        self.acquire(thread_id).close()
        delete_folder(self._folder / thread_id)

    def record_use(self, thread_id: str, at: float) -> None:
        """Records when the workspace was used, in Unix time. A record that is less than RECORD_SECONDS old is kept."""
        if not 0 <= at - (self.last_used_at(thread_id) or 0.0) < RECORD_SECONDS:
            note = self._folder / thread_id / "used"
            note.touch(mode=0o600)
            os.utime(note, (at, at))

    def last_used_at(self, thread_id: str) -> float | None:
        try:
            return (self._folder / thread_id / "used").stat().st_mtime
        except FileNotFoundError:
            return None

    def leave_notice(self, thread_id: str, notice: str, *, replaces_older: bool) -> None:
        """Stores a message for the thread's next run. Raises OSError."""
        mode = "w" if replaces_older else "x"
        with suppress(FileExistsError), (self._folder / thread_id / "notice").open(mode, encoding="utf-8") as file:
            file.write(notice)

    def take_notice(self, thread_id: str) -> str | None:
        """Returns the message and forgets it. Returns None if there is none. Raises OSError."""
        file = self._folder / thread_id / "notice"
        try:
            notice = file.read_text("utf-8", "replace")
            file.unlink()
        except FileNotFoundError:
            return None
        return notice

    def unpacked_thread_ids(self) -> list[str]:
        """Returns the threads whose files are not archived."""
        return [path.parent.name for path in self._folder.glob("*/workspace")]

    def _prepare_folder(self, path: Path) -> int:
        archive = path.with_name(ARCHIVE)
        if path.is_dir():
            # packing or unpacking was interrupted; the folder is complete
            archive.unlink(missing_ok=True)
            return path.stat().st_uid
        uid = self._next_uid() if self._drops_user else os.geteuid()
        if not archive.exists():
            _make_folder(path, uid)
        return uid

    def _next_uid(self) -> int:
        with _exclusive(self._folder / "uids") as counter:
            given = int(os.pread(counter, 20, 0) or b"0")
            os.pwrite(counter, str(given + 1).encode(), 0)
        return UIDS[given % len(UIDS)]


def read_lock_holder(lock: Path) -> LockHolder:
    """Returns an empty holder if the file is missing or not written yet."""
    try:
        found: object = json.loads(lock.read_bytes())
    except (OSError, ValueError):
        return LockHolder()
    record = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    socket_name, pid = record.get("door"), record.get("pid")
    return LockHolder(
        socket_name=socket_name if isinstance(socket_name, str) else "", pid=pid if isinstance(pid, int) else 0
    )


def _try_lock(path: Path) -> int:
    """Returns the open lock file, or -1 while another process holds it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(path, lock):
                return lock
        except BlockingIOError:
            os.close(lock)
            return -1
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # another process has replaced the lock file


def _is_same_file(path: Path, lock: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(lock).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def _exclusive(path: Path) -> Generator[int, None, None]:
    """Context manager: yields the open file, exclusively locked.

    The lock is held for a few system calls only. Raises BlockingIOError if a process that was frozen meanwhile has it,
    because waiting would freeze this one as well."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(LOCK_TRIES_MAX):
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(LOCK_RETRY_SECONDS)
        else:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", str(path))
        yield file
    finally:
        os.close(file)


def _make_folder(path: Path, uid: int) -> None:
    path.mkdir(mode=0o700)
    if uid != os.geteuid():
        os.chown(path, uid, uid)
