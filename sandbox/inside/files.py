"""File operations in the workspace, along paths that no link can lead out of it."""

from __future__ import annotations

import errno
import os
import stat

from sandbox.inside import protocol
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.host_connection import Call, CallError

LINKS_MAX = 40
LEADS_OUT = "The path leads out of /workspace."
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def printable_name(name: str) -> str:
    """Returns a file name as valid Unicode: bytes that are not UTF-8 become `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def stored_name(path: str) -> str:
    """Returns the file name that `printable_name` has made printable."""
    if "\\x" not in path:
        return path
    import re  # imported late, because most names do not need it

    plain = re.sub(
        rb"\\x([89a-f][0-9a-f])", lambda match: bytes([int(match[1], 16)]), path.encode("utf-8", "surrogateescape")
    )
    return os.fsdecode(plain)


class open_parent_folder:  # noqa: N801 - a context manager
    """Context manager: opens the parent folder of a path, and returns its descriptor and the last name ("." for the
    root).

    Links are followed while they stay inside. Raises CallError if one leads out, OSError if a folder is missing. Unless
    `is_exact`, a name that does not exist is replaced by the only name in the folder that looks the same."""

    def __init__(
        self, root: str, path: str, *, makes_folders: bool = False, follows_last: bool = True, is_exact: bool = False
    ) -> None:
        self._walk = _Walk(root, path, makes_folders, follows_last, is_exact)

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
    def __init__(self, root: str, path: str, makes_folders: bool, follows_last: bool, is_exact: bool) -> None:
        self._root = root
        self._is_exact = is_exact
        self._names = _parts(path)
        self._makes_folders = makes_folders
        self._follows_last = follows_last
        self._links = 0
        self.folders = [os.open(root, FOLDER)]

    def to_last(self) -> str:
        while self._names:
            name = self._names.pop(0)
            if not self._is_exact:
                name = _present_name(self.folders[-1], name)
            if name == "..":
                if len(self.folders) == 1:
                    raise CallError(LEADS_OUT)
                os.close(self.folders.pop())
            elif not self._names:
                if not (self._follows_last and self._follow(name)):
                    return name
            elif not self._follow(name):
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
        return "."

    def close(self) -> None:
        for folder in self.folders:
            os.close(folder)

    def _follow(self, name: str) -> bool:
        """Replaces a link by its target. Returns False if the name is not a link."""
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


def _present_name(folder: int, name: str) -> str:
    """Returns the name if it exists. Otherwise returns the only name in the folder that looks the same. macOS and web
    pages write names with decomposed letters and no-break spaces, which models do not repeat."""
    if name.isascii() and " " not in name:
        return name
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        import unicodedata  # imported late, because imports slow down the start

        def plain(one: str) -> str:
            return unicodedata.normalize("NFC", one).translate({0xA0: " ", 0x2009: " ", 0x202F: " "})

        similar = [one for one in os.listdir(folder) if plain(one) == plain(name)]
        return similar[0] if len(similar) == 1 else name
    except OSError:
        pass  # the operation that opens the name next reports the error
    return name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ENTRIES_MAX = 10_000
PART_PREFIX = ".threadhand-"
PART_SUFFIX = ".part"
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileOperations:
    """`refuse_stale` raises CallError for a call of a run that has lost the sandbox to a newer one."""

    def __init__(self, loop: EventLoop, root: str, refuse_stale: Callable[[Call], None]) -> None:
        self._loop = loop
        self._root = root
        self._refuse_stale = refuse_stale
        self.full_message = ""  # set by the host while the workspace is over its quota

    def read(self, call: Call) -> None:
        with open_parent_folder(self._root, self._path(call)) as (parent, name):
            descriptor = os.open(name, READ_FLAGS, dir_fd=parent)
        offset, length = int(call.request.get("offset", 0)), call.request.get("length")
        left = None if length is None else int(length)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CallError(_not_a_file(os.fstat(descriptor).st_mode))
            os.lseek(descriptor, offset, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        call.on_cancel = lambda: os.close(descriptor)

        def next_piece() -> bytes | None:
            nonlocal left
            size = protocol.DATA_BYTES_MAX if left is None else min(left, protocol.DATA_BYTES_MAX)
            try:
                piece = os.read(descriptor, size)
            except OSError as error:
                os.close(descriptor)
                call.fail(describe_os_error(error))
                return None
            if not piece:
                os.close(descriptor)
                call.answer({})
                return None
            if left is not None:
                left -= len(piece)
            return piece

        call.send_pieces(next_piece)

    def write(self, call: Call) -> None:
        self._refuse_stale(call)
        if self.full_message:
            raise CallError(self.full_message)
        # a write without an expected version creates a new file, which must not replace one with a similar name
        is_exact = call.request.get("expected") is None
        with open_parent_folder(self._root, self._path(call), makes_folders=True, is_exact=is_exact) as (parent, name):
            if name == "." or _is_folder(name, parent):
                raise CallError("The path is a folder.")
            _Replacement(call, os.dup(parent), name, self._refuse_stale)

    def list(self, call: Call) -> None:
        path = self._path(call)
        plain = "/".join(part for part in path.split("/") if part not in ("", "."))
        with open_parent_folder(self._root, path) as (parent, name):
            facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                call.answer({"entries": [_entry(printable_name(plain), facts)]})
                return
            folder = os.open(name, FOLDER, dir_fd=parent)
        try:
            call.answer({"entries": _entries(folder, printable_name(plain))})
        finally:
            os.close(folder)

    def delete(self, call: Call) -> None:
        self._refuse_stale(call)
        with open_parent_folder(self._root, self._path(call), follows_last=False) as (parent, name):
            if name == ".":
                raise CallError("The workspace itself cannot be deleted.")
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                call.answer({})
                return
            holder = os.dup(parent)
        import threading  # imported late, because imports slow down the start

        threading.Thread(target=self._delete_folder, args=(call, holder, name), daemon=True).start()

    def _delete_folder(self, call: Call, parent: int, name: str) -> None:
        import subprocess  # imported late, because the import takes a tenth of the start

        target = f"/proc/self/fd/{parent}/{name}"
        command = 'rm -rf -- "$0" 2>/dev/null || { chmod -R u+rwX -- "$0"; rm -rf -- "$0"; }'
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command, target],
                pass_fds=[parent],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
            )
            error = None if done.returncode == 0 else CallError("Not all of the folder could be deleted.")
        except OSError as failure:
            error = describe_os_error(failure)
        finally:
            os.close(parent)
        self._loop.call_from_thread(lambda: call.fail(error) if error else call.answer({}))

    def _path(self, call: Call) -> str:
        path = str(call.request["path"])
        if "\0" in path:
            raise CallError("A path must not contain NUL.")
        stored = stored_name(path)
        if stored == path:
            return path
        with_escapes = os.path.join(self._root, path)
        return path if os.path.lexists(with_escapes) else stored


class _Replacement:
    """A file being written: a temporary file next to the target that replaces it when complete."""

    def __init__(self, call: Call, parent: int, name: str, refuse_stale: Callable[[Call], None]) -> None:
        self._call = call
        self._refuse_stale = refuse_stale
        self._parent = parent
        self._name = name
        self._size = 0
        self._part = f"{PART_PREFIX}{os.urandom(6).hex()}{PART_SUFFIX}"
        try:
            self._file = os.open(self._part, WRITE_FLAGS, 0o600, dir_fd=parent)
        except OSError:
            os.close(parent)
            raise
        call.on_data, call.on_end, call.on_cancel = self._add, self._finish, self._abandon

    def _add(self, piece: bytes) -> None:
        left = memoryview(piece)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self._abandon()
            self._call.fail(describe_os_error(error))
            return
        self._size += len(piece)
        self._call.grant_credit(len(piece))

    def _finish(self) -> None:
        try:
            self._refuse_stale(self._call)
            expected = self._call.request.get("expected")
            if expected is not None and expected != _version(self._parent, self._name, expected):
                raise CallError("The file has changed meanwhile.", "changed")
            wanted = self._call.request.get("mode")
            if wanted is None:
                try:
                    wanted = os.stat(self._name, dir_fd=self._parent, follow_symlinks=False).st_mode
                except FileNotFoundError:
                    wanted = 0o644
            os.fchmod(self._file, int(wanted) & 0o777)
            os.replace(self._part, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except (CallError, OSError) as error:
            self._abandon()
            self._call.fail(error if isinstance(error, CallError) else describe_os_error(error))
            return
        os.close(self._file)
        os.close(self._parent)
        self._call.answer({"size_bytes": self._size})

    def _abandon(self) -> None:
        os.close(self._file)
        try:
            os.unlink(self._part, dir_fd=self._parent)
        except OSError:
            pass  # removed by a program inside
        os.close(self._parent)


def describe_os_error(error: OSError) -> CallError:
    """Translates the error into a message for the model."""
    texts = {
        "FileNotFoundError": "There is no such file or folder.",
        "PermissionError": "Permission denied.",
        "IsADirectoryError": "The path is a folder.",
        "NotADirectoryError": "A part of the path is a file, not a folder.",
        "FileExistsError": "A part of the path is a file, not a folder.",
    }
    by_number = {
        27: "The file exceeds the size limit for files.",
        28: "The disk is full; delete something first.",
        36: "The name is too long.",
        40: "The path leads through too many links.",
        122: "The disk quota is used up; delete something first.",
    }
    number = error.errno or 0
    text = by_number.get(number) or texts.get(type(error).__name__)
    code = "missing" if isinstance(error, FileNotFoundError) else "refused"
    return CallError(text or f"It failed: {error.strerror or 'unknown error'}.", code)


def _version(parent: int, name: str, expected: str) -> str:
    """Returns the file's `core.ports.file_version`, with a digest only if the size is the expected one."""
    try:
        descriptor = os.open(name, READ_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if expected.partition("-")[0] != str(size):
            return str(size)
        import hashlib  # imported late, because the import takes a tenth of the start

        return f"{size}-{hashlib.sha256(file.read(size + 1)).hexdigest()}"


def _is_folder(name: str, parent: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _entries(folder: int, under: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    names = os.listdir(folder)
    if len(names) > ENTRIES_MAX:
        raise CallError(f"The folder holds {len(names)} entries, more than {ENTRIES_MAX}; use the shell.")
    for name in sorted(names):
        if name.startswith(PART_PREFIX) and name.endswith(PART_SUFFIX):
            continue
        try:
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        found.append(_entry(f"{under}/{printable_name(name)}" if under else printable_name(name), facts))
    return found


def _entry(path: str, facts: os.stat_result) -> dict[str, Any]:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return {
        "path": path,
        "kind": kinds.get(stat.S_IFMT(facts.st_mode), "other"),
        "size_bytes": facts.st_size,
        "modified_at": facts.st_mtime,
    }


def _not_a_file(mode: int) -> str:
    return "The path is a folder." if stat.S_ISDIR(mode) else "The path is not an ordinary file."
