"""Measures and deletes folders that programs in a jail have made, whatever their depth and permissions.

Such a folder can have more levels than Python calls or open files allow, and paths that are too long for the system. So
a walk keeps only the outermost levels open, names everything relative to an open folder, and returns through `..`."""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HELD_LEVELS = 10
RETURN_STEPS_MAX = 50_000
NAME_BYTES = 4096
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # removed, or replaced by a file or a link
READ_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSize:
    """The disk space that a folder uses. `unread` counts the folders that are not included, because they could not be
    read or were moved."""

    named_bytes: int
    unread: int = 0


def measure_folder(folder: Path) -> FolderSize:
    """Counts the bytes that the folder's files use, without following links. Raises OSError if the folder cannot be
    read.

    Each entry counts at least 4096 bytes, because it uses one of a limited number of inodes."""
    used = unread = 0

    def count_entries(descriptor: int) -> list[str]:
        nonlocal used
        folders: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    taken = entry.stat(follow_symlinks=False).st_blocks * 512
                    used += max(taken, NAME_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
        return folders

    def count_unread(_error: OSError) -> None:
        nonlocal unread
        unread += 1

    _Walk(folder, count_entries, on_error=count_unread).run()
    return FolderSize(named_bytes=used, unread=unread)


def delete_folder(folder: Path) -> None:
    """Deletes the folder, including the parts that their owner may not read or change. Raises OSError."""

    def delete_files(descriptor: int) -> list[str]:
        folders: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                    continue
                with suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=descriptor)
        return folders

    def delete_emptied(name: str, parent: int) -> None:
        with suppress(FileNotFoundError):
            os.rmdir(name, dir_fd=parent)

    def fail(error: OSError) -> None:
        raise error

    _Walk(folder, delete_files, on_error=fail, on_leave=delete_emptied).run()
    folder.rmdir()


@dataclass(slots=True, kw_only=True)
class _Level:
    """A folder on the way to the current one. `own_mode` is set while the walk has given itself more permissions."""

    name: str
    identity: tuple[int, int]
    own_mode: int | None
    held: int = -1
    folders: list[str] = field(default_factory=list[str])


class _Walk:
    """Visits a folder and all folders in it, depth first.

    `on_folder` returns the names of the folders to enter. `on_error` receives what keeps the walk from a folder that
    still exists. `on_leave` receives the name of a folder whose walk is complete, and the descriptor of its parent."""

    def __init__(
        self,
        root: Path,
        on_folder: Callable[[int], list[str]],
        *,
        on_error: Callable[[OSError], None],
        on_leave: Callable[[str, int], None] = lambda _name, _parent: None,
    ) -> None:
        self._root = root
        self._on_folder = on_folder
        self._on_error = on_error
        self._on_leave = on_leave
        self._levels: list[_Level] = []
        self._current = -1
        self._steps_left = RETURN_STEPS_MAX

    def run(self) -> None:
        try:
            self._enter(str(self._root), None)
            while True:
                if folders := self._levels[-1].folders:
                    try:
                        self._enter(folders.pop(), self._current)
                    except OSError as error:
                        if error.errno not in GONE:
                            self._on_error(error)
                elif len(self._levels) == 1:
                    return
                else:
                    self._leave()
        finally:
            for descriptor in {self._current, *(level.held for level in self._levels)} - {-1}:
                os.close(descriptor)

    def _enter(self, name: str, parent: int | None) -> None:
        descriptor, own_mode = _open_folder(name, parent)
        level = _Level(name=name, identity=_identity(descriptor), own_mode=own_mode)
        self._levels.append(level)
        if len(self._levels) <= HELD_LEVELS:
            level.held = descriptor
        elif self._levels[-2].held < 0:
            os.close(self._current)
        self._current = descriptor
        level.folders = self._on_folder(descriptor)

    def _leave(self) -> None:
        level = self._levels.pop()
        if level.own_mode is not None:
            with suppress(OSError):
                # a program inside may have changed the folder meanwhile
                if stat.S_IMODE(os.fstat(self._current).st_mode) == level.own_mode | 0o700:
                    os.fchmod(self._current, level.own_mode)
        parent = self._levels[-1]
        descriptor = parent.held if parent.held >= 0 else _open_parent(self._current)
        os.close(self._current)
        self._current = descriptor
        if descriptor >= 0 and _identity(descriptor) == parent.identity:
            self._on_leave(level.name, descriptor)
        else:
            self._return_from_outside()

    def _return_from_outside(self) -> None:
        """Finds the current folder again from the levels that are still open, after a program has moved it."""
        if self._current >= 0:
            os.close(self._current)
        self._current = self._levels[HELD_LEVELS - 1].held
        for at in range(HELD_LEVELS, len(self._levels)):
            level = self._levels[at]
            self._steps_left -= 1
            descriptor = -1
            with suppress(OSError):
                descriptor = os.open(level.name, READ_FLAGS, dir_fd=self._current)
            is_same = descriptor >= 0 and _identity(descriptor) == level.identity
            if not is_same or self._steps_left < 0:
                if descriptor >= 0:
                    os.close(descriptor)
                del self._levels[at:]
                self._on_error(OSError(errno.ESTALE, "a folder was moved during the walk"))
                return
            if self._levels[at - 1].held < 0:
                os.close(self._current)
            self._current = descriptor


def _open_folder(name: str, parent: int | None) -> tuple[int, int | None]:
    """Returns the open folder. If its owner, which is this process, has no permission to use it, adds the permission
    and returns the mode to restore."""
    found = os.open(name, PATH_FLAGS, dir_fd=parent)
    try:
        facts = os.fstat(found)
        mode = stat.S_IMODE(facts.st_mode)
        needs_permission = mode & 0o700 != 0o700 and facts.st_uid == os.geteuid() != 0
        if needs_permission:
            Path(f"/proc/self/fd/{found}").chmod(mode | 0o700)
        return os.open(".", READ_FLAGS, dir_fd=found), mode if needs_permission else None
    finally:
        os.close(found)


def _open_parent(descriptor: int) -> int:
    """Returns the folder that contains this one now, or -1."""
    try:
        return os.open("..", READ_FLAGS, dir_fd=descriptor)
    except OSError:
        return -1


def _identity(descriptor: int) -> tuple[int, int]:
    facts = os.fstat(descriptor)
    return facts.st_dev, facts.st_ino
