"""The folders of the threads: private, owned by the uid of their jail, locked by the process that runs it."""

import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from core.errors import SandboxUnavailable

UIDS = range(30000, 60000)


@dataclass(slots=True, kw_only=True)
class Workspace:
    """`lock` is the open lock file; closing it gives the workspace free."""

    path: Path
    uid: int
    lock: int

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

    def take(self, thread_id: str) -> Workspace:
        """Raises SandboxUnavailable while another process runs the thread's sandbox."""
        home = self._folder / thread_id
        home.mkdir(exist_ok=True)
        home.chmod(0o711)
        lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Workspace(path=home / "workspace", uid=self._own(home / "workspace"), lock=lock)
        except BlockingIOError as error:
            os.close(lock)
            raise SandboxUnavailable(
                "The sandbox of this thread is in use by another process.", detail=str(home)
            ) from error
        except BaseException:
            os.close(lock)
            raise

    def delete(self, thread_id: str) -> None:
        """Deletes the thread's folder, if there is one. Its jail has been stopped."""
        home = self._folder / thread_id
        if not home.is_dir():
            return
        self.take(thread_id).close()
        shutil.rmtree(home, onerror=_open_and_repeat)

    def _own(self, path: Path) -> int:
        if path.is_dir():
            return path.stat().st_uid
        path.mkdir(mode=0o700)
        if not self._drops_user:
            return os.geteuid()
        uid = self._next_uid()
        os.chown(path, uid, uid)
        return uid

    def _next_uid(self) -> int:
        counter = os.open(self._folder / "uids", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(counter, fcntl.LOCK_EX)
            given = int(os.pread(counter, 20, 0) or b"0")
            os.pwrite(counter, str(given + 1).encode(), 0)
        finally:
            os.close(counter)
        return UIDS[given % len(UIDS)]


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
