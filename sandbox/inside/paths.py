"""Paths under the workspace, walked one name at a time so that no link leads out of it."""

from __future__ import annotations

import errno
import os

from sandbox.inside.link import CallError

LINKS_MAX = 40
LEADS_OUT = "The path leads out of /workspace."
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def shown(name: str) -> str:
    """A file name as text that travels anywhere: bytes that are no UTF-8 become `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def as_stored(path: str) -> str:
    """Undoes `shown`."""
    if "\\x" not in path:
        return path
    import re  # only here: most names need none

    plain = re.sub(
        rb"\\x([89a-f][0-9a-f])",
        lambda match: bytes([int(match[1], 16)]),
        path.encode("utf-8", "surrogateescape"),
    )
    return os.fsdecode(plain)


class opened_parent:  # noqa: N801 - a context manager
    """The folder that holds the path's last name, open, and that name ("." for the workspace itself).

    Links are followed where they stay inside. Raises CallError when one leads out, OSError when a folder is missing.
    """

    def __init__(
        self, root: str, path: str, *, makes_folders: bool = False, follows_last: bool = True
    ) -> None:
        self._walk = _Walk(root, path, makes_folders, follows_last)

    def __enter__(self) -> tuple[int, str]:
        try:
            name = self._walk.to_last()
        except BaseException:
            self._walk.close()
            raise
        return self._walk.folders[-1], name

    def __exit__(self, *_error: object) -> None:
        self._walk.close()


class _Walk:
    def __init__(self, root: str, path: str, makes_folders: bool, follows_last: bool) -> None:
        self._root = root
        self._names = _parts(path)
        self._makes_folders = makes_folders
        self._follows_last = follows_last
        self._links = 0
        self.folders = [os.open(root, FOLDER)]

    def to_last(self) -> str:
        while self._names:
            name = self._names.pop(0)
            if name == "..":
                if len(self.folders) == 1:
                    raise CallError(LEADS_OUT)
                os.close(self.folders.pop())
            elif not self._names:
                if not (self._follows_last and self._follow(name)):
                    return name
            elif not self._follow(name):
                self._enter(name)
        return "."

    def close(self) -> None:
        for folder in self.folders:
            os.close(folder)

    def _enter(self, name: str) -> None:
        if len(self.folders) > 500:
            raise CallError("The path has too many folders; use the shell.")
        try:
            folder = os.open(name, FOLDER, dir_fd=self.folders[-1])
        except FileNotFoundError:
            if not self._makes_folders:
                raise
            os.mkdir(name, 0o755, dir_fd=self.folders[-1])
            folder = os.open(name, FOLDER, dir_fd=self.folders[-1])
        self.folders.append(folder)

    def _follow(self, name: str) -> bool:
        """Puts a link's target in front of what is left; False when the name is no link."""
        try:
            target = os.readlink(name, dir_fd=self.folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        self._links += 1
        if self._links > LINKS_MAX:
            raise OSError(errno.ELOOP, "too many links")
        if target.startswith("/"):
            for start in ("/workspace", self._root):
                if target == start or target.startswith(start + "/"):
                    target = target[len(start) :]
                    break
            else:
                raise CallError(LEADS_OUT)
            while len(self.folders) > 1:
                os.close(self.folders.pop())
        self._names = _parts(target) + self._names
        return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
