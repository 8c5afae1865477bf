"""The program inside, for a host at the other end of a network that may vanish without a word.

Started like `agent.py`. Two more settings: `silence_seconds_max`, after which it ends because nobody calls any more,
and `browser_places`, where to look for a browser (see `places`; may be missing). The root is the folder it starts in.
The programs of one sandbox find each other in its folder for temporary files.
"""

from __future__ import annotations

import os
import sys
import time

from sandbox.inside import protocol
from sandbox.inside.browser.find_browser import find_browser
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.fast_stdlib import loads, signal
from sandbox.inside.host_connection import Call, HostConnection
from sandbox.inside.program import Program, remove_folder, set_rlimits

GRACE_SECONDS = 2.0


class ProgramRegistry:
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
                end_program(pid)
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
                file.write(f"{fence} {process_start_time(pid)}")
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
                if since == process_start_time(int(name)):
                    found[int(name)] = int(fence)
                else:
                    os.unlink(path)
            except (OSError, ValueError):
                continue
        return found


def process_start_time(pid: int) -> str:
    """A number that no other process with that pid has; "0" for none. Raises nothing."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return "0"


def end_program(pid: int) -> None:
    """SIGTERM, at which a program ends its sessions; SIGKILL for one that does not."""
    since = process_start_time(pid)
    deadline = time.monotonic() + GRACE_SECONDS
    how = signal.SIGTERM
    while since != "0" and process_start_time(pid) == since and not is_zombie(pid):
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


TYPE_CHECKING = False  # typing takes its time, and every sandbox waits for it
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class HostMonitor:
    """Listens beside the program to what the host says."""

    def __init__(
        self,
        loop: EventLoop,
        link: HostConnection,
        succession: ProgramRegistry,
        silence_seconds_max: float,
    ) -> None:
        self._loop = loop
        self._succession = succession
        self._silence_seconds_max = silence_seconds_max
        self._heard_at = time.monotonic()
        self._greeted = link.on_hello
        self._called = link.on_call
        link.on_hello = self._greet
        link.on_call = self._call
        self._look()

    def _greet(self, hello: dict[str, Any]) -> None:
        self._heard_at = time.monotonic()
        fence = self._succession.take_over(int(hello.get("fence", 0)))
        self._greeted({**hello, "fence": fence if hello.get("fence") else 0})

    def _call(self, call: Call) -> None:
        self._heard_at = time.monotonic()
        if call.request.get("op") == "fence" and isinstance(call.request.get("fence"), int):
            call.request["fence"] = self._succession.take_over(call.request["fence"])
        self._called(call)

    def _look(self) -> None:
        quiet_seconds = time.monotonic() - self._heard_at
        if quiet_seconds >= self._silence_seconds_max:
            self._loop.is_running = False
        else:
            self._loop.later(min(5.0, self._silence_seconds_max - quiet_seconds), self._look)


def remove_browser_files(state_folder: str) -> None:
    """What need not last would be saved with the sandbox."""
    if os.path.isdir(f"{state_folder}-browser"):
        import shutil  # only here: it takes its time

        shutil.rmtree(f"{state_folder}-browser", ignore_errors=True)


def exit_once(number: int, frame: FrameType | None) -> None:
    """A successor asks until it is done; the second time must not cut short what ends the sessions."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def main() -> None:
    settings: dict[str, Any] = {**loads(sys.argv[3]), "root": os.path.realpath(os.getcwd())}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, exit_once)
    set_rlimits(settings.get("limits", {}))
    read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
    state_folder = f"/tmp/threadhand-{os.urandom(6).hex()}"
    os.umask(0o022)
    temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: TID251 - the sandbox's own
    succession = ProgramRegistry(os.path.join(temporary, "threadhand-programs"))
    loop = EventLoop()
    link = HostConnection(loop, read_fd, write_fd)
    program = Program(loop, link, settings, state_folder)
    if settings.get("browser_places"):
        program.find_browser = lambda: find_browser(settings["browser_places"])
    HostMonitor(loop, link, succession, float(settings["silence_seconds_max"]))
    link.send_hello({"protocol": protocol.PROTOCOL_VERSION, "pid": os.getpid()})
    try:
        loop.run()
    finally:
        program.close()
        succession.leave()
        remove_folder(state_folder)
        remove_browser_files(state_folder)
