"""Builds and runs the docker command lines that create, enter and remove a sandbox."""

import asyncio
import contextlib
import hashlib
import shlex
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox.installed import SCRIPT
from sandbox.limits import SandboxLimits

USER = "1000:1000"
WORKSPACE = "/workspace"
HOME_LABEL = "threadhand.home"
THREAD_LABEL = "threadhand.thread"
OUTPUT_BYTES_MAX = 1 << 20
STREAM_BYTES = 256 * 1024
ENVIRONMENT = {
    "PATH": "/workspace/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/home/user",
    "LANG": "C.UTF-8",
    "PYTHONUSERBASE": "/workspace/.local",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerCommands:
    """Command lines for the sandboxes of one data folder. `home` distinguishes them from others on the same engine."""

    image: str
    home: str
    cores: float = 2.0
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    def name(self, thread_id: str) -> str:
        """Returns the name of the container and of the volume with its files. Docker accepts every thread id."""
        return f"threadhand-{hashlib.sha256(self.home.encode()).hexdigest()[:12]}-{thread_id}"

    def label_options(self, thread_id: str) -> list[str]:
        return ["--label", f"{HOME_LABEL}={self.home}", "--label", f"{THREAD_LABEL}={thread_id}"]

    def hardening_flags(self) -> list[str]:
        """The flags that apply to every container."""
        limits = self.limits
        memory = str(limits.memory_bytes)
        temporary, home = limits.temporary_bytes, limits.home_bytes
        return [
            "--pull", "never", "--init", "--network", "none", "--ipc", "private", "--hostname", "sandbox",
            "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--pids-limit", str(limits.processes), "--memory", memory, "--memory-swap", memory,
            "--cpus", f"{self.cores:g}", "--ulimit", f"nofile={limits.open_files}:{limits.open_files}",
            "--ulimit", "core=0:0",
            "--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={temporary},mode=1777",  # noqa: S108 - a folder inside the container
            "--tmpfs", f"/home/user:rw,exec,nosuid,nodev,size={home},mode=0700,uid=1000,gid=1000",
        ]  # fmt: skip

    def trial_run(self) -> list[str]:
        """Returns the command that runs bash and Python of the image once with all the flags, and prints what is
        installed."""
        python = f"import sys; sys.version_info >= (3, 9) or sys.exit(1)\n{SCRIPT}"
        return [
            "run", "--rm", *self.hardening_flags(), "--user", USER, "--entrypoint", "bash", self.image,
            "-c", f"python3 -c {shlex.quote(python)}",
        ]  # fmt: skip

    def create_volume(self, thread_id: str) -> list[str]:
        return ["volume", "create", *self.label_options(thread_id), self.name(thread_id)]

    def chown_volume(self, thread_id: str) -> list[str]:
        """Returns the command that makes the sandbox user the owner of the volume, because Docker creates volumes as
        root's."""
        return [
            "run", "--rm", *self.hardening_flags(), "--cap-add", "CHOWN", "--user", "0:0",
            *self._mount(thread_id), "--entrypoint", "chown", self.image, USER, WORKSPACE,
        ]  # fmt: skip

    def start(self, thread_id: str) -> list[str]:
        environment = [part for name, value in ENVIRONMENT.items() for part in ("--env", f"{name}={value}")]
        return [
            "run", "--detach", "--name", self.name(thread_id), *self.label_options(thread_id), *self.hardening_flags(),
            *environment, "--user", USER, *self._mount(thread_id), "--workdir", WORKSPACE,
            "--entrypoint", "sleep", self.image, "2147483647",
        ]  # fmt: skip

    def enter(self, thread_id: str, command: Sequence[str]) -> list[str]:
        container = self.name(thread_id)
        return ["exec", "--interactive", "--user", USER, "--workdir", WORKSPACE, container, *command]

    def stop(self, thread_id: str) -> list[str]:
        """Returns the command that removes the container. It succeeds if there is no container."""
        return ["rm", "--force", self.name(thread_id)]

    def forget(self, thread_id: str) -> list[str]:
        return ["volume", "rm", "--force", self.name(thread_id)]

    def list_thread_ids(self) -> list[str]:
        """Returns the command that prints one line for each thread that has a container."""
        wanted = f"label={HOME_LABEL}={self.home}"
        return ["ps", "--all", "--filter", wanted, "--format", f'{{{{.Label "{THREAD_LABEL}"}}}}']

    def rlimits(self) -> dict[str, int]:
        """Docker enforces the other limits."""
        return {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": self.limits.file_bytes}

    def _mount(self, thread_id: str) -> list[str]:
        volume = self.name(thread_id)
        # without volume-nocopy, docker gives an empty volume back to root at each mount, as the image lacks the folder
        return ["--mount", f"type=volume,source={volume},target={WORKSPACE},volume-nocopy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerResult:
    exit_code: int
    output: str
    stderr: str

    @property
    def is_success(self) -> bool:
        """Also True if the container to remove is already gone or being removed."""
        is_gone = "No such container" in self.stderr or "already in progress" in self.stderr
        return self.exit_code == 0 or is_gone

    @property
    def error_line(self) -> str:
        lines = self.stderr.strip().splitlines()
        return lines[-1][:300] if lines else f"exit code {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerCli:
    """The `docker` program of this machine, or a compatible one."""

    executable: str = "docker"

    async def run(self, arguments: Sequence[str], *, seconds: float) -> DockerResult:
        """Raises OSError if there is no such program, and TimeoutError."""
        process = await asyncio.create_subprocess_exec(
            self.executable, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        try:
            async with asyncio.timeout(seconds):
                output, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return DockerResult(
            exit_code=process.returncode or 0,
            output=output[:OUTPUT_BYTES_MAX].decode(errors="replace"),
            stderr=stderr[:OUTPUT_BYTES_MAX].decode(errors="replace"),
        )

    async def open(self, arguments: Sequence[str]) -> "AttachedProcess":
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            self.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=STREAM_BYTES
        )
        if process.stdin is None or process.stdout is None:
            raise OSError("it has no streams")  # cannot happen: both pipes were requested
        return AttachedProcess(process=process, reader=process.stdout, writer=process.stdin)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedProcess:
    """A docker process whose standard input and output are a byte stream to the program inside."""

    process: Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def wait_or_kill(self, seconds: float) -> None:
        """Waits for the process, and kills it after that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.process.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
