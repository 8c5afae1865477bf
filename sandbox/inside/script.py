"""The file that a shell session sources for each command."""

from __future__ import annotations

import os

from sandbox.inside.link import CallError


class Script:
    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, lines: str) -> None:
        """For a shell that reads nothing now. The old one goes first, lest there be no room. Raises CallError."""
        self._remove()
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            _write(self.path, lines)
        except OSError as error:
            raise CallError(f"The sandbox cannot take the command: {error.strerror}.") from None

    def replace(self, lines: str) -> None:
        """For a shell that may be reading: it reads the old lines or the new ones, or finds no file on a full disk."""
        fresh = self.path + ".new"
        try:
            _write(fresh, lines)
            os.replace(fresh, self.path)
        except OSError:
            self._remove()

    def _remove(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            return


def _write(path: str, lines: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(lines.encode("utf-8", "surrogateescape") + b"\n")
