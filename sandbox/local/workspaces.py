"""The folders of the threads: private, owned by the uid of their jail, locked by the process that runs it."""

import fcntl
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from core.domain.errors import LeaseLost, SandboxUnavailable

UIDS = range(30000, 60000)
ARCHIVE = "workspace.tar.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who has a workspace, as its lock file says: where it can be reached, and the outermost process of the sandbox."""

    door: str = ""
    pid: int = 0


class WorkspaceInUse(SandboxUnavailable):
    """Another process runs the thread's sandbox."""

    def __init__(self, home: Path, tenant: LockHolder) -> None:
        super().__init__(
            "The sandbox of this thread is in use by another process.", detail=str(home)
        )
        self.tenant = tenant


@dataclass(slots=True, kw_only=True)
class Workspace:
    """`lock` is the open lock file; closing it gives the workspace free. An archived one has no folder at `path`."""

    path: Path
    uid: int
    lock: int
    door: str = ""

    @property
    def archive(self) -> Path:
        return self.path.with_name(ARCHIVE)

    @property
    def is_archived(self) -> bool:
        return not self.path.is_dir()

    def make_draft(self) -> Path:
        """An empty folder of the jail's user, to unpack into."""
        draft = self.path.with_name("workspace.new")
        if draft.is_dir():
            _remove(draft)
        _make_own(draft, self.uid)
        return draft

    def remove_folder(self) -> None:
        """At once, as the others see it."""
        gone = self.path.with_name("workspace.gone")
        if gone.is_dir():
            _remove(gone)
        self.path.rename(gone)
        _remove(gone)

    def start_anew(self) -> None:
        """An empty folder; the archive that is not whole is put aside for the operator."""
        self.archive.rename(self.archive.with_suffix(".broken"))
        _make_own(self.path, self.uid)

    def runs(self, pid: int) -> None:
        """Writes down what runs in it, for the others."""
        record = json.dumps({"door": self.door, "pid": pid}).encode()
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, record, 0)

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class Workspaces:
    """Folders `<folder>/<thread_id>/workspace`. `drops_user`: each gets a uid of its own (needs root)."""

    def __init__(self, folder: Path, *, drops_user: bool) -> None:
        self._folder = folder
        self._drops_user = drops_user

    def prepare(self) -> None:
        """Makes the folder, passable and not readable for others. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._folder.stat().st_uid == os.geteuid():
            self._folder.chmod(0o711)

    def take(self, thread_id: str, *, door: str = "") -> Workspace:
        """Raises WorkspaceInUse while another process runs the thread's sandbox; `door` is where it finds this one."""
        home = self._folder / thread_id
        home.mkdir(exist_ok=True)
        home.chmod(0o711)
        lock = _locked(home / "lock")
        if lock < 0:
            raise WorkspaceInUse(home, read_lock_holder(home / "lock"))
        try:
            workspace = Workspace(
                path=home / "workspace", uid=self._own(home / "workspace"), lock=lock, door=door
            )
            workspace.runs(0)
        except BaseException:
            os.close(lock)
            raise
        return workspace

    def has(self, thread_id: str) -> bool:
        """Whether the thread ever had a workspace that is not deleted."""
        return (self._folder / thread_id).is_dir()

    def advance(self, thread_id: str, fence: int) -> None:
        """Notes the newest run that used the workspace. Raises LeaseLost for an older one, OSError."""
        home = self._folder / thread_id
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home / "fence") as file:
            newest = int(os.pread(file, 20, 0) or b"0")
            if fence < newest:
                raise LeaseLost(f"run {newest} uses the sandbox of {thread_id}, after {fence}")
            os.pwrite(file, str(fence).encode(), 0)

    def evict(self, thread_id: str, tenant: LockHolder) -> None:
        """Takes the lock away from a process that does not answer: it keeps a file that is no longer the lock.

        What ran in the workspace has been ended.
        """
        home = self._folder / thread_id
        with _alone(home / "eviction"):
            if read_lock_holder(home / "lock") == tenant:
                (home / "lock").unlink(missing_ok=True)

    def delete(self, thread_id: str) -> None:
        """Deletes the thread's folder, if there is one. Its jail has been stopped."""
        if not self.has(thread_id):
            return
        self.take(thread_id).close()
        _remove(self._folder / thread_id)

    def used(self, thread_id: str, at: float) -> None:
        """Notes when, in seconds since 1970."""
        note = self._folder / thread_id / "used"
        note.touch(mode=0o600)
        os.utime(note, (at, at))

    def used_at(self, thread_id: str) -> float | None:
        try:
            return (self._folder / thread_id / "used").stat().st_mtime
        except FileNotFoundError:
            return None

    def unpacked(self) -> list[str]:
        """The threads whose files lie in a folder."""
        return [path.parent.name for path in self._folder.glob("*/workspace")]

    def _own(self, path: Path) -> int:
        archive = path.with_name(ARCHIVE)
        if path.is_dir():
            archive.unlink(missing_ok=True)  # cut off on the way to or from it; the folder is whole
            return path.stat().st_uid
        uid = self._next_uid() if self._drops_user else os.geteuid()
        if not archive.exists():
            _make_own(path, uid)
        return uid

    def _next_uid(self) -> int:
        with _alone(self._folder / "uids") as counter:
            given = int(os.pread(counter, 20, 0) or b"0")
            os.pwrite(counter, str(given + 1).encode(), 0)
        return UIDS[given % len(UIDS)]


def read_lock_holder(lock: Path) -> LockHolder:
    """Nobody where the file is not, or not yet, written."""
    try:
        found: object = json.loads(lock.read_bytes())
    except (OSError, ValueError):
        return LockHolder()
    record = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    door, pid = record.get("door"), record.get("pid")
    return LockHolder(
        door=door if isinstance(door, str) else "", pid=pid if isinstance(pid, int) else 0
    )


def _locked(path: Path) -> int:
    """The open lock, or -1 while another process has it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, lock):
                return lock
        except BlockingIOError:
            os.close(lock)
            return -1
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # it was taken away from its owner meanwhile


def _is_still(path: Path, lock: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(lock).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def _alone(path: Path) -> Generator[int, None, None]:
    """The open file, while no other process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _make_own(path: Path, uid: int) -> None:
    path.mkdir(mode=0o700)
    if uid != os.geteuid():
        os.chown(path, uid, uid)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, onerror=_open_and_repeat)


def _open_and_repeat(act: object, path: str, error: object) -> None:
    """A folder without permissions holds up its owner's removal: give it some and try again."""
    parent = Path(path).parent
    parent.chmod(0o700)
    entry = Path(path)
    if entry.is_dir() and not entry.is_symlink():
        entry.chmod(0o700)
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
