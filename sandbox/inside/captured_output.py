"""Captures the output of a command: its beginning and end in memory, all of it in a file."""

from __future__ import annotations

import os

from sandbox.inside.fast_stdlib import deque

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable

    Sought = tuple[bytes, Callable[[], None]]


HEAD_BYTES = 96 * 1024
TAIL_BYTES = 160 * 1024
FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_BYTES_MAX = 160 * 1024 * 1024
FILES_MAX = 200


class OutputFiles:
    """The folder with complete outputs. Deletes the oldest files when they are too many, or too large together."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: deque[CapturedOutput] = deque()

    def add(self, output: CapturedOutput) -> None:
        while self._kept and (len(self._kept) >= FILES_MAX or self._total_bytes() > FILES_BYTES_MAX - FILE_BYTES_MAX):
            self._kept.popleft().delete_file()
        self._kept.append(output)

    def _total_bytes(self) -> int:
        return sum(kept.file_bytes for kept in self._kept)


class CapturedOutput:
    """The output of a command: its first and last bytes, and all of it in a file."""

    def __init__(self, files: OutputFiles, name: str) -> None:
        self._files = files
        self.name = name
        self._path = os.path.join(files.folder, name)
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self.file_bytes = 0
        self.total_bytes = 0
        self.bytes_before_input = 0
        self.sought: Sought | None = None

    def call_when_printed(self, text: bytes, on_found: Callable[[], None]) -> bool:
        """Returns whether the text was printed since the last input. If not, calls `on_found` once it is printed,
        unless another text is searched for by then."""
        self.sought = None if text in self._end(self.total_bytes - self.bytes_before_input) else (text, on_found)
        return self.sought is None

    def _end(self, length: int) -> bytes:
        """Returns the last bytes that are kept."""
        tail = bytes(self._tail[-length:]) if length else b""
        return tail if len(tail) >= length else bytes(self._head[len(tail) - length :]) + tail

    def add(self, piece: bytes) -> None:
        if piece and not self.total_bytes:
            self._start_file()
        self.total_bytes += len(piece)
        if self._file is not None:
            self._write(piece)
        found = None
        if self.sought is not None and self.sought[0] in self._end(len(self.sought[0]) - 1) + piece:
            found, self.sought = self.sought[1], None
        room = HEAD_BYTES - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        if found is not None:
            found()

    @property
    def exceeds_file_limit(self) -> bool:
        return self.total_bytes > FILE_BYTES_MAX

    def read(self, end_bytes: int | None = None) -> tuple[str, int, str | None]:
        """Returns the text in memory, how many bytes were left out in its middle, and the path of the file with all of
        it, or None.

        With `end_bytes`, returns only what was printed since the last input, at most that many of its last bytes."""
        if end_bytes is not None:
            return decode(self._end(min(end_bytes, self.total_bytes - self.bytes_before_input))), 0, None
        tail = self._tail[-TAIL_BYTES:]
        dropped = self.total_bytes - len(self._head) - len(tail)
        path = self._path if self.file_bytes else None
        if not dropped:
            return decode(self._head + tail), 0, path
        where = f"; the first {self.file_bytes} bytes are in {path}" if self.exceeds_file_limit else ""
        note = f"\n[... {dropped} bytes left out here{where} ...]\n"
        return decode(self._head) + note + decode(tail), dropped, path

    def delete_file(self) -> None:
        self.close()
        if self.file_bytes:
            self.file_bytes = 0
            remove(self._path)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def free_memory(self) -> None:
        """Keeps only the file, and frees the memory."""
        self._head.clear()
        self._tail.clear()

    def _start_file(self) -> None:
        self._files.add(self)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.makedirs(self._files.folder, mode=0o700, exist_ok=True)
            self._file = os.open(self._path, flags, 0o600)
        except OSError:
            return  # only head and tail are kept

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        try:
            self.file_bytes += os.write(self._file, piece[: FILE_BYTES_MAX - self.file_bytes])
        except OSError:
            self.close()
            return
        if self.file_bytes >= FILE_BYTES_MAX:
            self.close()


def decode(text: bytes | bytearray) -> str:
    return text.decode("utf-8", "replace")


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # a program inside has removed it
