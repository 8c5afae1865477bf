"""Small disks that fill up. Each is a tmpfs in the mount namespace of a helper process, accessed through /proc."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.requirements_of_the_machine import lacking
from tests.servers import server_folder

MEBIBYTE = 1024 * 1024
_NOBODY = "65534"
_MOUNT = f"""
mount -t tmpfs -o size=$1,mode=755 tmpfs "$0" && echo mounted &&
exec setpriv --reuid {_NOBODY} --regid {_NOBODY} --clear-groups cat
"""
"""Mounts the tmpfs, then keeps it until stdin is closed. Runs as nobody, for a PostgreSQL of that user."""


class Disk:
    """A small disk. Root and nobody access it at `folder`; a command prefixed with `entered` finds it at `place`."""

    def __init__(self, keeper_pid: int, place: Path) -> None:
        self.folder = Path(f"/proc/{keeper_pid}/root{place}")
        self.place = place
        self.entered = ("nsenter", "--target", str(keeper_pid), "--mount")
        self._filler = self.folder / "filler"

    def fill(self) -> None:
        """Writes to the disk until no byte is free."""
        with self._filler.open("ab", buffering=0) as written:
            for size in (MEBIBYTE, 4096):
                with suppress(OSError):
                    while True:
                        written.write(bytes(size))
        assert self.free_bytes() == 0

    def clear(self) -> None:
        self._filler.unlink()

    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


@contextmanager
def small_disk(size_bytes: int) -> Iterator[Disk]:
    """Context manager: yields a disk. Skips the test if the machine lacks root rights, `unshare` or `setpriv`."""
    if os.geteuid() or not (shutil.which("unshare") and shutil.which("setpriv")):
        lacking("jail", "a disk of its own takes root and the programs unshare and setpriv")
    with server_folder("thdisk-") as folder:
        keeper = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", _MOUNT, str(folder), str(size_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with keeper:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            try:
                said = keeper.stdout.readline()
                if said != b"mounted\n":
                    lacking("jail", f"a disk of its own was refused: {said!r}")
                yield Disk(keeper.pid, folder)
            finally:
                keeper.stdin.close()
                keeper.wait()
