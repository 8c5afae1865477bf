"""The program inside for a host across a network, whose connection may break silently.

Started like `program`, with two more settings: `silence_seconds_max`, after which the program ends if the host is
silent, and optionally `browser_places`, where to find a browser (see `find_browser`). The root is the working folder.
The programs of one sandbox find each other through a folder for temporary files."""

from __future__ import annotations

import os
import sys
import time

from sandbox.inside import protocol
from sandbox.inside.event_loop import EventLoop
from sandbox.inside.fast_stdlib import loads, signal
from sandbox.inside.host_connection import Call, HostConnection
from sandbox.inside.program import Program, remove_folder, set_rlimits

GRACE_SECONDS = 2.0


class ProgramRegistry:
    """The running programs of a sandbox: the program of the newest run ends those of older runs.

    Each program has a file in `folder`, named by its pid, with its fence and its start time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._write_record(0)

    def end_older_programs(self, fence: int) -> int:
        """Ends programs with lower fences, except readers (fence 0). Returns the highest fence."""
        self._write_record(fence)
        others = self._other_programs()
        for pid, its in others.items():
            if 0 < its < fence:
                end_program(pid)
        return max([fence, *others.values()])

    def unregister(self) -> None:
        try:
            os.unlink(f"{self._folder}/{os.getpid()}")
        except OSError:
            return  # the folder was removed

    def _write_record(self, fence: int) -> None:
        pid = os.getpid()
        draft = f"{self._folder}/.{pid}"
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(draft, "w") as file:
                file.write(f"{fence} {process_start_time(pid)}")
            os.replace(draft, f"{self._folder}/{pid}")
        except OSError:
            return  # the disk is full, or a command uses the path; the host still checks fences

    def _other_programs(self) -> dict[int, int]:
        """Returns running programs and their fences. Removes files of ended programs, which a snapshot may contain."""
        found: dict[int, int] = {}
        try:
            names = os.listdir(self._folder)
        except OSError:
            return found  # a command has removed the folder
        for name in names:
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
    """Returns the start time of the process, which identifies it if pids are reused; "0" if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return "0"


def end_program(pid: int) -> None:
    """Sends SIGTERM, at which a program ends its sessions, and SIGKILL if that takes too long."""
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


TYPE_CHECKING = False  # importing typing would slow down the start of every sandbox
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


class HostMonitor:
    """Ends the program when the host is silent for too long, and ends older programs when a newer run connects."""

    def __init__(
        self, loop: EventLoop, host: HostConnection, registry: ProgramRegistry, silence_seconds_max: float
    ) -> None:
        self._loop = loop
        self._registry = registry
        self._silence_seconds_max = silence_seconds_max
        self._last_heard_at = time.monotonic()
        self._next_on_hello = host.on_hello
        self._next_on_call = host.on_call
        host.on_hello = self._on_hello
        host.on_call = self._call
        self._check_silence()

    def _on_hello(self, hello: dict[str, Any]) -> None:
        self._last_heard_at = time.monotonic()
        fence = self._registry.end_older_programs(int(hello.get("fence", 0)))
        self._next_on_hello({**hello, "fence": fence if hello.get("fence") else 0})

    def _call(self, call: Call) -> None:
        self._last_heard_at = time.monotonic()
        if call.request.get("op") == "fence" and isinstance(call.request.get("fence"), int):
            call.request["fence"] = self._registry.end_older_programs(call.request["fence"])
        self._next_on_call(call)

    def _check_silence(self) -> None:
        quiet_seconds = time.monotonic() - self._last_heard_at
        if quiet_seconds >= self._silence_seconds_max:
            self._loop.is_running = False
        else:
            self._loop.call_later(min(5.0, self._silence_seconds_max - quiet_seconds), self._check_silence)


def exit_once(number: int, frame: FrameType | None) -> None:
    """Exits at the first SIGTERM and ignores later ones, which must not interrupt the ending of the sessions."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def find_browser(places: dict[str, Any]) -> dict[str, str] | None:
    """Returns the settings for `BrowserLauncher`, or None. `pythons` and `chromiums` are path patterns, best first."""
    from glob import iglob  # imported late, because not every sandbox needs it

    def first(patterns: list[str]) -> str | None:
        paths = (path for pattern in patterns for path in sorted(iglob(pattern), reverse=True))
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def has_playwright(python: str) -> bool:
        prefix = os.path.dirname(os.path.dirname(python))
        return any(iglob(f"{prefix}/lib/python3*/*-packages/playwright/__init__.py"))

    pythons = [path for path in places["pythons"] if has_playwright(path)]
    python, chromium = first(pythons), first(places["chromiums"])
    return {"python": python, "chromium": chromium} if python and chromium else None


def main() -> None:
    settings: dict[str, Any] = {**loads(sys.argv[3]), "root": os.path.realpath(os.getcwd())}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, exit_once)
    set_rlimits(settings.get("limits", {}))
    read_fd, write_fd = int(sys.argv[1]), int(sys.argv[2])
    state_folder = f"/tmp/threadhand-{os.urandom(6).hex()}"
    os.umask(0o022)
    temporary = os.environ.get("TMPDIR", "/tmp")  # noqa: TID251 - the sandbox's own
    registry = ProgramRegistry(os.path.join(temporary, "threadhand-programs"))
    loop = EventLoop()
    host = HostConnection(loop, read_fd, write_fd)
    program = Program(loop, host, settings, state_folder)
    if settings.get("browser_places"):
        program.find_browser = lambda: find_browser(settings["browser_places"])
    HostMonitor(loop, host, registry, float(settings["silence_seconds_max"]))
    host.send_hello({"protocol": protocol.PROTOCOL_VERSION, "pid": os.getpid()})
    try:
        loop.run()
    finally:
        program.close()
        registry.unregister()
        remove_folder(state_folder)
        if os.path.isdir(f"{state_folder}-browser"):
            import subprocess  # imported late, because the import is slow

            # unlike shutil, it deletes folders of any depth
            command = ["rm", "-rf", "--", f"{state_folder}-browser"]
            subprocess.run(command, stderr=subprocess.DEVNULL, check=False)
