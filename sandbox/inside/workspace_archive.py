"""Packs a workspace into one compressed archive and unpacks it, as the only program in a jail.

Started as `pack FD LIMITS` or `unpack FD LIMITS`; FD is the descriptor of the archive. The jail contains nothing else
that a link could lead to. Names, modes, times, both kinds of links and holes in files are restored; sockets, pipes and
owners are not."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO

EXIT_DONE, EXIT_FAILED, EXIT_CORRUPT, EXIT_DISK_FULL = 0, 1, 3, 4
BLOCK_BYTES = 512
COPY_BYTES = 1 << 20
LEVEL = 1  # the fastest level, because the machine has other work
Hole = tuple[int, int]


class ArchivePacker:
    def __init__(self, root: str, out: IO[bytes]) -> None:
        self._root = root
        self._out = out
        self._linked: dict[tuple[int, int], str] = {}

    def pack(self) -> None:
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            for name in _names(os.path.join(self._root, folder)):
                path = os.path.join(folder, name)
                facts = os.lstat(os.path.join(self._root, path))
                self._add(path, facts)
                if stat.S_ISDIR(facts.st_mode):
                    waiting.append(path)
        self._out.write(bytes(2 * BLOCK_BYTES))

    def _add(self, path: str, facts: os.stat_result) -> None:
        entry = tarfile.TarInfo(path)
        entry.mode = stat.S_IMODE(facts.st_mode)
        entry.mtime = facts.st_mtime_ns // 1_000_000_000
        if stat.S_ISDIR(facts.st_mode):
            entry.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(facts.st_mode):
            entry.type = tarfile.SYMTYPE
            entry.linkname = os.readlink(os.path.join(self._root, path))
        elif not stat.S_ISREG(facts.st_mode):
            return
        elif (first := self._first_name(path, facts)) is not None:
            entry.type, entry.linkname = tarfile.LNKTYPE, first
        else:
            self._add_file(entry, path, facts)
            return
        self._head(entry)

    def _first_name(self, path: str, facts: os.stat_result) -> str | None:
        """Returns the name under which the same file was packed before, or None."""
        if facts.st_nlink == 1:
            return None
        first = self._linked.setdefault((facts.st_dev, facts.st_ino), path)
        return None if first == path else first

    def _add_file(self, entry: tarfile.TarInfo, path: str, facts: os.stat_result) -> None:
        with _opened(os.path.join(self._root, path)) as file:
            size = facts.st_size
            if facts.st_blocks * 512 >= size:
                entry.size = size
                self._head(entry)
                self._copy(file, [(0, size)])
                return
            parts = list(_parts_with_data(file.fileno(), size))
            numbers = [len(parts), *(number for part in parts for number in part)]
            sparse_map = "".join(f"{number}\n" for number in numbers).encode()
            sparse_map += bytes(-len(sparse_map) % BLOCK_BYTES)
            entry.size = len(sparse_map) + sum(length for _, length in parts)
            entry.pax_headers = {
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": path,
                "GNU.sparse.realsize": str(size),
            }
            self._head(entry)
            self._out.write(sparse_map)
            self._copy(file, parts)

    def _copy(self, file: IO[bytes], parts: list[Hole]) -> None:
        total_bytes = 0
        for offset, length in parts:
            file.seek(offset)
            left = length
            while left:
                piece = file.read(min(left, COPY_BYTES))
                if not piece:
                    raise OSError(errno.EIO, "a file became shorter")
                self._out.write(piece)
                left -= len(piece)
            total_bytes += length
        self._out.write(bytes(-total_bytes % BLOCK_BYTES))

    def _head(self, entry: tarfile.TarInfo) -> None:
        self._out.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))


class ArchiveUnpacker:
    def __init__(self, root: str, archive: tarfile.TarFile) -> None:
        self._root = root
        self._archive = archive
        self._folders: list[tarfile.TarInfo] = []

    def unpack(self) -> None:
        while (entry := self._archive.next()) is not None:
            vars(self._archive)["members"].clear()  # otherwise the library would keep all entries in memory
            path = self._path(entry.name)
            if entry.isdir():
                os.mkdir(path, 0o700)
                self._folders.append(entry)
            elif entry.issym():
                os.symlink(entry.linkname, path)
                os.utime(path, (entry.mtime, entry.mtime), follow_symlinks=False)
            elif entry.islnk():
                os.link(self._path(entry.linkname), path, follow_symlinks=False)
            elif entry.isreg():
                self._archive.makefile(entry, path)
                self._finish(entry, path)
            else:
                raise tarfile.TarError(f"an entry of an unknown kind: {entry.name!r}")
        for folder in reversed(self._folders):  # permissions are set last, because they may forbid writing
            self._finish(folder, self._path(folder.name))

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if not name or name.startswith("/") or ".." in parts:
            raise tarfile.TarError(f"the name leads out of the workspace: {name!r}")
        return os.path.join(self._root, name)

    def _finish(self, entry: tarfile.TarInfo, path: str) -> None:
        os.chmod(path, entry.mode)
        os.utime(path, (entry.mtime, entry.mtime))


def pack(root: str, descriptor: int) -> None:
    with (
        open(descriptor, "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0) as packed,
        io.BufferedWriter(packed, COPY_BYTES) as out,
    ):
        ArchivePacker(root, out).pack()


def unpack(root: str, descriptor: int) -> None:
    """Raises TarError, EOFError, zlib.error or BadGzipFile if the archive is corrupt."""
    with (
        open(descriptor, "rb") as file,
        gzip.GzipFile(fileobj=file, mode="rb") as packed,
        tarfile.open(
            fileobj=packed, mode="r|", bufsize=COPY_BYTES, encoding="utf-8", errors="surrogateescape"
        ) as archive,
    ):
        vars(archive)["copybufsize"] = COPY_BYTES
        ArchiveUnpacker(root, archive).unpack()
        while packed.read(COPY_BYTES):
            pass  # read up to the checksum at the end


def main() -> None:
    from sandbox.inside.program import set_rlimits

    what, descriptor, limits = sys.argv[1:4]
    set_rlimits(json.loads(limits))
    try:
        (pack if what == "pack" else unpack)("/workspace", int(descriptor))
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError):
        sys.exit(EXIT_CORRUPT if what == "unpack" else EXIT_FAILED)
    except OSError as error:
        sys.exit(EXIT_DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else EXIT_FAILED)
    except MemoryError:
        sys.exit(EXIT_FAILED)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        os.chmod(folder, 0o700)  # the permissions of the folder are already recorded
        return sorted(os.listdir(folder))


def _opened(path: str) -> IO[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except PermissionError:
        os.chmod(path, 0o600)
        descriptor = os.open(path, flags)
    return open(descriptor, "rb", buffering=0)


def _parts_with_data(descriptor: int, size: int) -> Iterator[Hole]:
    """Yields offset and length of each part, and an empty part at the end, as the format requires."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break
        at = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        yield start, at - start
    yield size, 0
