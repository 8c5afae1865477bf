"""Several hosts at one sandbox: the program that serves the newest run ends those of earlier ones."""

from __future__ import annotations

import os
import time

from sandbox.inside.lean import signal

GRACE_SECONDS = 2.0


class Succession:
    """Each living program has a file in `folder`, named by its pid, with its fence and the moment it started."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._note(0)

    def take_over(self, fence: int) -> int:
        """Ends the programs of lower fences, those of readers (fence 0) not; answers the highest fence there is."""
        self._note(fence)
        others = self._others()
        for pid, its in others.items():
            if 0 < its < fence:
                end(pid)
        return max([fence, *others.values()])

    def leave(self) -> None:
        try:
            os.unlink(f"{self._folder}/{os.getpid()}")
        except OSError:
            return  # the workspace was cleared out

    def _note(self, fence: int) -> None:
        pid = os.getpid()
        draft = f"{self._folder}/.{pid}"
        try:
            with open(draft, "w") as file:
                file.write(f"{fence} {started_at(pid)}")
            os.replace(draft, f"{self._folder}/{pid}")
        except OSError:
            return  # a full disk: the host's own fences still hold

    def _others(self) -> dict[int, int]:
        """Living programs and their fences; what a snapshot brought along of dead ones is removed."""
        found: dict[int, int] = {}
        for name in os.listdir(self._folder):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            path = f"{self._folder}/{name}"
            try:
                with open(path) as file:
                    fence, since = file.read(200).split()
                if since == started_at(int(name)):
                    found[int(name)] = int(fence)
                else:
                    os.unlink(path)
            except (OSError, ValueError):
                continue
        return found


def started_at(pid: int) -> str:
    """A number that no other process with that pid has; "0" for none. Raises nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return "0"


def end(pid: int) -> None:
    """SIGTERM, at which a program ends its sessions; SIGKILL for one that does not."""
    since = started_at(pid)
    deadline = time.monotonic() + GRACE_SECONDS
    how = signal.SIGTERM
    while since != "0" and started_at(pid) == since and not is_zombie(pid):
        if time.monotonic() > deadline:
            how = signal.SIGKILL
        try:
            os.kill(pid, how)
        except OSError:
            return
        time.sleep(0.01)


def is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return True
