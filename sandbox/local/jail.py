"""One jail: its bubblewrap flags, its process, and the connection to the program inside."""

import asyncio
import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.client.connection import Connection
from sandbox.inside import socket_relay
from sandbox.limits import SandboxLimits
from sandbox.local import seccomp
from sandbox.local.cgroups import Cgroup, Cgroups
from sandbox.local.egress_policy import EgressConfig
from sandbox.local.egress_proxy import EgressProxy
from sandbox.local.process_table import child_pids, is_alive
from sandbox.local.thread_network import ThreadNetwork
from sandbox.local.toolbox import INSIDE_FOLDER, SandboxToolbox
from sandbox.local.workspaces import Workspace

INSIDE_UID = 1000
PROGRAM_FOLDER = "/opt/threadhand"
ENVIRONMENT = {
    "PATH": "/workspace/.local/bin:/home/user/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/home/user",
    "USER": "user",
    "LOGNAME": "user",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 - a folder inside the jail
}
PROXY_URL = f"http://{socket_relay.EGRESS_PROXY_HOST}:{socket_relay.COMMANDS_PORT}"
BROWSER_PROXY_URL = f"http://{socket_relay.EGRESS_PROXY_HOST}:{socket_relay.BROWSER_PORT}"
NO_PROXY = "localhost,127.0.0.1,::1"
PROXY_ENVIRONMENT = {
    **{name: PROXY_URL for word in ("http", "https", "all") for name in (f"{word}_proxy", f"{word}_PROXY".upper())},
    "no_proxy": NO_PROXY,
    "NO_PROXY": NO_PROXY,
    "NODE_USE_ENV_PROXY": "1",
    # packages are installed in the workspace, so that they stay with the conversation and use no memory
    "PYTHONUSERBASE": "/workspace/.local",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_NO_CACHE_DIR": "1",
    "npm_config_prefix": "/workspace/.local",
    "npm_config_cache": "/tmp/npm",  # noqa: S108 - a folder inside the jail
    "npm_config_update_notifier": "false",
}
OPTIONAL_SYSTEM_PATHS = (
    "/etc/ssl/certs", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
    "/etc/fonts", "/etc/localtime", "/etc/mime.types", "/etc/terminfo", "/etc/java-17-openjdk",
)  # fmt: skip
GENERATED_FILES = {
    "/etc/passwd": "root:x:0:0::/:/bin/false\nuser:x:1000:1000::/home/user:/bin/bash\n",
    "/etc/group": "root:x:0:\nuser:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n",
    "/etc/resolv.conf": "",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
PYTHON_FOLDER = "/opt/python"
PYTHON_START = f"""import os, sys
folder = "{INSIDE_FOLDER}/lib/python%d.%d/site-packages" % sys.version_info[:2]
if sys.prefix == sys.base_prefix and os.path.isdir(folder):
    own = [path for path in sys.path if path.startswith(sys.base_prefix) and path.endswith("-packages")]
    sys.path.insert(sys.path.index(own[0]) if own else len(sys.path), folder)
"""
"""Adds the packages of the toolbox to the path of every Python of that version: after those that were installed inside,
and before those of the machine, whose versions may not fit. Virtual environments made inside do not get them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JailConfig:
    """What a jail contains.

    `python_prefix` is None if it lies under /usr. `has_proxy`: the jail can reach the internet."""

    workspace: Path
    program: Path
    python: Path
    python_prefix: Path | None
    limits: SandboxLimits
    toolbox: SandboxToolbox | None = None
    has_proxy: bool = False


def open_memory_file(content: bytes, stack: ExitStack) -> int:
    """Returns the descriptor of an anonymous file with this content. `stack` closes it."""
    descriptor = os.memfd_create("threadhand")
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def write_bwrap_arguments(config: JailConfig, stack: ExitStack) -> tuple[int, list[int]]:
    """Returns the descriptor for `--args`, and all descriptors that bwrap must inherit.

    Arguments on the command line would be visible inside the jail."""
    descriptors: list[int] = []
    made: list[str] = []
    files = dict(GENERATED_FILES)
    if config.toolbox is not None:
        files[f"{PYTHON_FOLDER}/sitecustomize.py"] = PYTHON_START
    for path, content in files.items():
        descriptors.append(open_memory_file(content.encode(), stack))
        made += ["--perms", "0444", "--ro-bind-data", str(descriptors[-1]), path]
    descriptors.append(open_memory_file(seccomp.build_filter(platform.machine()), stack))
    environment = {**ENVIRONMENT, **(PROXY_ENVIRONMENT if config.has_proxy else {})}
    flags = [*isolation_flags(environment), *system_flags(), *made, *_prepare_folder(config)]
    flags += ["--seccomp", str(descriptors[-1]), "--remount-ro", "/"]
    descriptors.append(open_memory_file("\0".join(flags).encode() + b"\0", stack))
    return descriptors[-1], descriptors


def isolation_flags(environment: dict[str, str]) -> list[str]:
    inside = str(INSIDE_UID)
    flags = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
    flags += ["--new-session", "--hostname", "sandbox", "--uid", inside, "--gid", inside]
    flags += ["--cap-drop", "ALL", "--clearenv"]
    for name, value in environment.items():
        flags += ["--setenv", name, value]
    return flags


def system_flags() -> list[str]:
    flags = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            flags += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            flags += ["--ro-bind", str(path), str(path)]
    flags += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/etc", "/run", "/opt", "/home", "/var"):
        flags += ["--dir", folder]
    flags += ["--symlink", "/tmp", "/var/tmp"]  # noqa: S108 - a folder inside the jail
    for path in OPTIONAL_SYSTEM_PATHS:
        flags += ["--ro-bind-try", path, path]
    return flags


def _prepare_folder(plan: JailConfig) -> list[str]:
    limits = plan.limits
    flags = ["--perms", "1777", "--size", str(limits.temporary_bytes), "--tmpfs", "/tmp"]  # noqa: S108 - a folder inside the jail
    flags += ["--perms", "1777", "--size", str(limits.temporary_bytes // 2), "--tmpfs", "/dev/shm"]  # noqa: S108 - a folder inside the jail
    flags += ["--remount-ro", "/dev"]  # a tmpfs without a size limit
    flags += ["--perms", "0700", "--size", str(limits.home_bytes), "--tmpfs", "/home/user"]
    flags += ["--bind", str(plan.workspace), "/workspace"]
    flags += ["--ro-bind", str(plan.program), PROGRAM_FOLDER, "--chdir", "/workspace"]
    if plan.python_prefix is not None:  # must follow mounts that would hide it
        prefix = str(plan.python_prefix)
        flags += ["--ro-bind", prefix, prefix]
        flags += ["--setenv", "PATH", f"{ENVIRONMENT['PATH']}:{prefix}/bin"]
    if plan.toolbox is not None:
        for folder, inside in plan.toolbox.mounts():
            flags += ["--ro-bind", str(folder), inside]
        flags += ["--setenv", "PYTHONPATH", PYTHON_FOLDER]
    return flags


STOP_SECONDS = 5.0
STREAM_BYTES = 256 * 1024


@dataclass(eq=False)
class Jail:
    """Satisfies `sandbox.running_sandboxes.RunningSandbox`."""

    process: subprocess.Popen[bytes]
    connection: Connection
    workspace: Workspace
    cgroups: Cgroups | None
    egress_proxy: EgressProxy | None = None
    cgroup: Cgroup | None = None
    is_remote: bool = False

    @property
    def pid(self) -> int:
        """The pid of the outermost bwrap; every process in the jail descends from it."""
        return self.process.pid

    @property
    def init_pid(self) -> int:
        """The pid of the first process in the jail's namespace; 0 if it has not started, or has ended."""
        return next(iter(self._init_pids()), 0)

    @property
    def workspace_path(self) -> Path:
        """The workspace's path on the host."""
        return self.workspace.path

    @property
    def has_cgroup(self) -> bool:
        return self.cgroup is not None

    async def on_hello(self) -> None:
        if self.egress_proxy is not None:
            self.egress_proxy.start()
        if self.cgroups is not None:
            # the kernel moves a process between groups in some ten milliseconds
            add = self.cgroups.add_process
            self.cgroup = await asyncio.to_thread(add, self.pid, name=f"jail-{self.pid}")

    async def stop(self) -> None:
        """Returns when no process of the jail is left: the kernel kills the whole namespace together with its init."""
        inits = self._init_pids()
        try:
            self.kill()
            if not await _wait_until(lambda: self.process.poll() is not None):
                self.process.kill()
                await _wait_until(lambda: self.process.poll() is not None)
            await self.connection.close()
            if self.egress_proxy is not None:
                await self.egress_proxy.close()
            # the outer bubblewrap may end before its init does
            await _wait_until(lambda: not any(map(is_alive, inits)))
            if self.cgroup is not None:
                await self.cgroup.remove()
                self.cgroup = None
        finally:
            self.workspace.close()

    def kill(self) -> None:
        """Kills every process of the jail, without waiting for them."""
        if self.process.poll() is not None:
            return
        inits = self._init_pids()
        if not inits:
            self.process.kill()  # the init has not started yet
        for init in inits:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGKILL)

    def _init_pids(self) -> list[int]:
        """Returns the pid of the jail's init, or nothing if it has not started."""
        return [] if self.process.returncode is not None else child_pids(self.pid)


async def _wait_until(is_so: Callable[[], bool]) -> bool:
    """Waits until the condition is true. Returns False if it does not become true in time."""
    pause, waited = 0.001, 0.0
    while not is_so() and waited < STOP_SECONDS:
        await asyncio.sleep(pause)
        waited += pause
        pause = min(pause * 2, 0.05)
    return is_so()


async def start_jail(
    executable: Path,
    config: JailConfig,
    workspace: Workspace,
    *,
    drops_user: bool,
    cgroups: Cgroups | None,
    egress: EgressConfig | None = None,
) -> Jail:
    """Starts a jail. Raises OSError if bubblewrap cannot be started; later failures close the connection."""
    label, network = workspace.path.parent.name, ThreadNetwork(workspace.path.parent)
    gateway = None if egress is None else EgressProxy(egress, network, label=label)
    with ExitStack() as undoing:
        ours, theirs = socket.socketpair()
        undoing.callback(ours.close)  # also ends the program inside
        if gateway is not None:
            undoing.callback(gateway.close_sockets)
        with theirs:
            process = _spawn_jail(executable, config, workspace.uid, drops_user, theirs, gateway)
        undoing.callback(process.kill)
        reader, writer = await asyncio.open_connection(sock=ours, limit=STREAM_BYTES)
        undoing.pop_all()
    return Jail(process, Connection(reader, writer, label=label), workspace, cgroups, gateway)


def _spawn_jail(
    executable: Path, plan: JailConfig, uid: int, drops_user: bool, end: socket.socket, gateway: EgressProxy | None
) -> subprocess.Popen[bytes]:
    """Starts the jail. Call it on the main thread, because the parent-death signal follows the starting thread."""
    passed = [end.fileno()] if gateway is None else [end.fileno(), gateway.program_socket.fileno()]
    settings = {
        "root": "/workspace",
        "limits": plan.limits.rlimits(),
        "command_seconds_max": plan.limits.command_seconds,
        "browser": {"proxy": BROWSER_PROXY_URL, **plan.toolbox.browser_settings()} if plan.toolbox else None,
        "egress": None if gateway is None else gateway.program_socket.fileno(),
    }
    with ExitStack() as stack:
        arguments_fd, descriptors = write_bwrap_arguments(plan, stack)
        command = ["bwrap", "--args", str(arguments_fd), "--", str(plan.python), "-I", "-S"]
        command += [f"{PROGRAM_FOLDER}/agent.py", str(passed[0]), str(passed[0])]
        command.append(json.dumps(settings))
        return start_bwrap(executable, command, [*descriptors, *passed], uid, drops_user)


def start_bwrap(
    executable: Path,
    command: list[str],
    descriptors: list[int],
    uid: int,
    drops_user: bool,
    *,
    stderr: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts bubblewrap with an empty environment and only these descriptors; as `uid` if `drops_user`."""
    user = uid if drops_user else None
    return subprocess.Popen(
        command,
        executable=executable,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={},
        cwd="/",
        pass_fds=descriptors,
        user=user,
        group=user,
        extra_groups=[] if drops_user else None,
        umask=0o022,
    )


def runs_as_root() -> bool:
    return os.geteuid() == 0
