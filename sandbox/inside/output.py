"""What a command printed: its head and tail in memory, all of it (up to a cap) in a file."""

from __future__ import annotations

import os

from sandbox.inside.lean import deque

HEAD_BYTES = 96 * 1024
TAIL_BYTES = 160 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_BYTES_MAX = 160 * 1024 * 1024


class OutputFiles:
    """The folder of the files; the oldest ones go when all together are too large."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: deque[Output] = deque()

    def add(self, output: Output) -> None:
        while self._kept and sum(kept.in_file for kept in self._kept) > (
            FILES_BYTES_MAX - FILE_BYTES_MAX
        ):
            self._kept.popleft().forget_file()
        self._kept.append(output)


class Output:
    def __init__(self, files: OutputFiles, name: str) -> None:
        self._files = files
        self.name = name
        self._path = os.path.join(files.folder, name)
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._had_file = False
        self.in_file = 0
        self.total = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if self._file is not None:
            self._write(piece)
        room = HEAD_BYTES - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        if not self._had_file and len(self._tail) > TAIL_BYTES:
            self._start_file()
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    @property
    def is_over_cap(self) -> bool:
        return self.total > FILE_BYTES_MAX

    def read(self) -> tuple[str, int, str | None]:
        """The text as kept, how many bytes it lacks in its middle, and the file that has them."""
        tail = self._tail[-TAIL_BYTES:]
        dropped = self.total - len(self._head) - len(tail)
        if not dropped:
            return decode(self._head + tail), 0, None
        path = self._path if self.in_file else None
        where = f"; the first {self.in_file} bytes are in {path}" if self.is_over_cap else ""
        note = f"\n[... {dropped} bytes left out here{where} ...]\n"
        return decode(self._head) + note + decode(tail), dropped, path

    def forget_file(self) -> None:
        self.close()
        if self.in_file:
            self.in_file = 0
            remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _start_file(self) -> None:
        self._had_file = True
        self._files.add(self)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(self._files.folder, mode=0o700, exist_ok=True)
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            return  # the kept head and tail are all there is
        self._write(bytes(self._head + self._tail))

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        try:
            self.in_file += os.write(self._file, piece[: FILE_BYTES_MAX - self.in_file])
        except OSError:
            self.close()
            return
        if self.in_file >= FILE_BYTES_MAX:
            self.close()


def decode(text: bytes | bytearray) -> str:
    return text.decode("utf-8", "replace")


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # somebody inside removed it before us
