"""A running container: its first process, in a jail where there is one, and the commands started in it."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

from simulator.modal.output import Output, ready_to_read, ready_to_write
from simulator.serving import cancel, spawn

END_SECONDS = 10.0
FOLDERS = ("root", "tmp", "workspace")
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jail:
    """With what containers are kept apart. `prefix`: where the Python lies if not under /usr. `user`: whom to become
    on the host; None: nobody else. `more`: folders besides, and where they lie inside."""

    bwrap: Path
    python: Path
    prefix: Path | None
    user: int | None
    more: tuple[tuple[Path, str], ...] = ()

    def bound(self) -> tuple[tuple[Path, str], ...]:
        prefix = () if self.prefix is None else ((self.prefix, str(self.prefix)),)
        return (*prefix, *self.more)


class CommandRefused(Exception):
    """A command could not be started; the text says why."""


class Command:
    """One command in a container. `code` is None while it runs, negative for a signal."""

    def __init__(self, stdin: int, stdout: int, stderr: int) -> None:
        os.set_blocking(stdin, False)
        self._stdin: int | None = stdin
        self._writing = asyncio.Lock()
        self.written_bytes = 0
        self.stdout = Output(stdout)
        self.stderr = Output(stderr)
        self.code: int | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self._pumps = [spawn(one.pump(), name="a command's output") for one in (self.stdout, self.stderr)]

    @property
    def takes_input(self) -> bool:
        return self._stdin is not None

    async def write(self, offset: int, content: bytes, *, is_last: bool) -> None:
        """What was written before at the offset is not written again. Raises BrokenPipeError."""
        async with self._writing:
            left = memoryview(content)[max(0, self.written_bytes - offset) :]
            while left:
                if self._stdin is None:
                    raise BrokenPipeError
                try:
                    done = os.write(self._stdin, left)
                except BlockingIOError:
                    await ready_to_write(self._stdin)
                    continue
                left = left[done:]
                self.written_bytes += done
            if is_last:
                self.close_input()

    def close_input(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def close(self) -> None:
        for pump in self._pumps:
            await cancel(pump)
        if not self.started.done():
            self.started.cancel()
        if not self._writing.locked():
            self.close_input()


class Container:
    """`root` is the container's file system; without a jail commands see the host's, and start in `root`."""

    def __init__(self, root: Path, jail: Jail | None, *, has_network: bool) -> None:
        self.root = root
        self._jail = jail
        self.has_network = has_network
        self._commands: dict[str, Command] = {}
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Raises OSError."""
        for folder in (self.root, *(self.root / name for name in FOLDERS)):
            folder.mkdir(parents=True, exist_ok=True)
            if self._jail is not None and self._jail.user is not None:
                os.chown(folder, self._jail.user, self._jail.user)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            program = files("simulator.modal").joinpath("container_init.py").read_text("utf-8")
            user = self._jail.user if self._jail else None
            self._process = subprocess.Popen(
                [*self._prefix(), "-I", "-S", "-c", program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user is not None else None,
            )
        self._listening = spawn(self._listen(), name="a container")

    async def run(self, name: str, argv: Sequence[str], *, env: Mapping[str, str], folder: str) -> Command:
        """Raises CommandRefused."""
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        (stdin_out, stdin_in), (stdout_out, stdout_in), (stderr_out, stderr_in) = pipes
        command = self._commands[name] = Command(stdin_in, stdout_out, stderr_out)
        if self._jail is None:
            home, temporary = str(self.root / "root"), str(self.root / "tmp")
            path = f"{Path(sys.executable).parent}:{PATH}"
        else:
            home, temporary = "/root", "/tmp"  # noqa: S108 - the container's own
            path = f"{self._jail.prefix}/bin:{PATH}" if self._jail.prefix else PATH
        message = {
            "id": name,
            "argv": list(argv),
            "env": {"PATH": path, "HOME": home, "TMPDIR": temporary, "LANG": "C.UTF-8", **env},
            "cwd": self._folder(folder),
        }
        theirs = [stdin_out, stdout_in, stderr_in]
        try:
            await self._send(json.dumps(message).encode(), theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        await command.started
        return command

    async def kill(self, name: str) -> None:
        await self._send(json.dumps({"id": name}).encode(), [])

    async def end(self) -> None:
        """Returns when nothing of the container runs."""
        if self._listening is None:
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        deadline = asyncio.get_running_loop().time() + END_SECONDS
        while self._process.poll() is None:
            if asyncio.get_running_loop().time() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.sleep(0.002)
        await cancel(self._listening)
        self._listening = None
        self._control.close()
        self._all_ended()
        for command in self._commands.values():
            await command.close()

    async def _listen(self) -> None:
        while True:
            try:
                text = self._control.recv(1 << 16)
            except BlockingIOError:
                await ready_to_read(self._control.fileno())
                continue
            except OSError:
                text = b""
            if not text:
                return self._all_ended()
            self._told(cast("dict[str, object]", json.loads(text)))

    def _told(self, message: dict[str, object]) -> None:
        command = self._commands[str(message["id"])]
        is_given_up = command.started.cancelled()
        if (problem := message.get("problem")) is not None:
            if not is_given_up:
                command.started.set_exception(CommandRefused(str(problem)))
            command.close_input()
        elif "pid" in message:
            if not is_given_up:
                command.started.set_result(None)
        else:
            command.code = cast("int", message["code"])
            command.ended.set()

    def _all_ended(self) -> None:
        for command in self._commands.values():
            if not command.started.done():
                command.started.set_exception(CommandRefused("the container has ended"))
            if command.code is None:
                command.code = -signal.SIGKILL
                command.ended.set()

    async def _send(self, text: bytes, descriptors: list[int]) -> None:
        while True:
            try:
                socket.send_fds(self._control, [text], descriptors)
            except BlockingIOError:
                await ready_to_write(self._control.fileno())
            except OSError as error:
                raise CommandRefused("the container has ended") from error
            else:
                return

    def _folder(self, folder: str) -> str:
        """Where the folder of the container is for its processes, made if need be."""
        place = self.root / folder.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        return folder if self._jail is not None else str(place)

    def _prefix(self) -> list[str]:
        if self._jail is None:
            return [sys.executable]
        jail = self._jail
        flags = [str(jail.bwrap), "--unshare-user", "--unshare-pid", "--unshare-ipc"]
        flags += ["--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session"]
        flags += ["--hostname", "modal", "--uid", "0", "--gid", "0", "--cap-drop", "ALL"]
        if not self.has_network:
            flags += ["--unshare-net"]
        flags += ["--bind", str(self.root), "/", "--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            path = Path("/") / name
            if path.is_symlink():
                self._link(name, str(path.readlink()))
            elif path.is_dir():
                flags += ["--ro-bind", str(path), str(path)]
        for path in ("/etc/ssl", "/etc/alternatives", "/etc/ld.so.cache", "/etc/fonts"):
            flags += ["--ro-bind-try", path, path]
        for folder, inside in jail.bound():
            flags += ["--ro-bind", str(folder), inside]
        return [*flags, "--proc", "/proc", "--dev", "/dev", "--clearenv", "--", str(jail.python)]

    def _link(self, name: str, target: str) -> None:
        """A link of the system, made in the root itself, where a copy takes it along."""
        place = self.root / name
        if not place.is_symlink():
            place.symlink_to(target)


async def copied(source: Path, target: Path) -> None:
    """A whole file system, with its owners, links and holes. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copying = await asyncio.create_subprocess_exec(
        shutil.which("cp") or "cp", "-a", "--reflink=auto", "--", str(source), str(target),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await copying.communicate()
    if copying.returncode:
        raise OSError(said.decode(errors="replace")[-400:])
