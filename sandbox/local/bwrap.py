"""The full set of bubblewrap's flags for one jail; there is no weaker one."""

import os
import platform
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.inside import gate
from sandbox.limits import Limits
from sandbox.local import seccomp
from sandbox.local.toolbox import INSIDE_FOLDER, Toolbox

INSIDE_UID = 1000
PROGRAM_FOLDER = "/opt/threadhand"
ENVIRONMENT = {
    "PATH": "/workspace/.local/bin:/home/user/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "HOME": "/home/user",
    "USER": "user",
    "LOGNAME": "user",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108 - the jail's own
}
PROXY_URL = f"http://{gate.ADDRESS[0]}:{gate.ADDRESS[1]}"
NO_PROXY = "localhost,127.0.0.1,::1"
PROXY_ENVIRONMENT = {
    **{
        name: PROXY_URL
        for word in ("http", "https", "all")
        for name in (f"{word}_proxy", f"{word}_PROXY".upper())
    },
    "no_proxy": NO_PROXY,
    "NO_PROXY": NO_PROXY,
    "NODE_USE_ENV_PROXY": "1",
    # what is installed lies in the workspace: it stays with the conversation, and takes no memory
    "PYTHONUSERBASE": "/workspace/.local",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_NO_CACHE_DIR": "1",
    "npm_config_prefix": "/workspace/.local",
    "npm_config_cache": "/tmp/npm",  # noqa: S108 - the jail's own
    "npm_config_update_notifier": "false",
}
READABLE_IF_THERE = (
    "/etc/ssl/certs", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
    "/etc/fonts", "/etc/localtime", "/etc/mime.types", "/etc/terminfo", "/etc/java-17-openjdk",
)  # fmt: skip
MADE_FILES = {
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
    sys.path.append(folder)
"""
"""Gives every Python of that version the packages of the toolbox, behind whatever is installed inside; an environment
made inside stays without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JailPlan:
    """What is bound into a jail. `python_prefix` is None when it lies under /usr. `has_proxy`: it has a way out."""

    workspace: Path
    program: Path
    python: Path
    python_prefix: Path | None
    limits: Limits
    toolbox: Toolbox | None = None
    has_proxy: bool = False


def memory_file(content: bytes, stack: ExitStack) -> int:
    """An anonymous file with that content, closed with the stack."""
    descriptor = os.memfd_create("threadhand")
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def arguments(plan: JailPlan, stack: ExitStack) -> tuple[int, list[int]]:
    """The descriptor for `--args`, and all that bwrap must inherit. On the command line they would be seen inside."""
    descriptors: list[int] = []
    made: list[str] = []
    files = dict(MADE_FILES)
    if plan.toolbox is not None:
        files[f"{PYTHON_FOLDER}/sitecustomize.py"] = PYTHON_START
    for path, content in files.items():
        descriptors.append(memory_file(content.encode(), stack))
        made += ["--perms", "0444", "--ro-bind-data", str(descriptors[-1]), path]
    descriptors.append(memory_file(seccomp.program(platform.machine()), stack))
    flags = [*_isolation(plan), *_system(plan), *made, *_own(plan)]
    flags += ["--seccomp", str(descriptors[-1]), "--remount-ro", "/"]
    descriptors.append(memory_file("\0".join(flags).encode() + b"\0", stack))
    return descriptors[-1], descriptors


def _isolation(plan: JailPlan) -> list[str]:
    inside = str(INSIDE_UID)
    flags = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
    flags += ["--new-session", "--hostname", "sandbox", "--uid", inside, "--gid", inside]
    flags += ["--cap-drop", "ALL", "--clearenv"]
    environment = {**ENVIRONMENT, **(PROXY_ENVIRONMENT if plan.has_proxy else {})}
    for name, value in environment.items():
        flags += ["--setenv", name, value]
    return flags


def _system(plan: JailPlan) -> list[str]:
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
    flags += ["--symlink", "/tmp", "/var/tmp"]  # noqa: S108 - the jail's own
    for path in READABLE_IF_THERE:
        flags += ["--ro-bind-try", path, path]
    return flags


def _own(plan: JailPlan) -> list[str]:
    limits = plan.limits
    flags = ["--perms", "1777", "--size", str(limits.temporary_bytes), "--tmpfs", "/tmp"]  # noqa: S108 - the jail's own
    flags += ["--perms", "1777", "--size", str(limits.temporary_bytes // 2), "--tmpfs", "/dev/shm"]  # noqa: S108 - the jail's own
    flags += ["--perms", "0700", "--size", str(limits.home_bytes), "--tmpfs", "/home/user"]
    flags += ["--bind", str(plan.workspace), "/workspace"]
    flags += ["--ro-bind", str(plan.program), PROGRAM_FOLDER, "--chdir", "/workspace"]
    if plan.python_prefix is not None:  # after the folders that would cover it
        prefix = str(plan.python_prefix)
        flags += ["--ro-bind", prefix, prefix]
        flags += ["--setenv", "PATH", f"{ENVIRONMENT['PATH']}:{prefix}/bin"]
    if plan.toolbox is not None:
        for folder, inside in plan.toolbox.bound():
            flags += ["--ro-bind", str(folder), inside]
        flags += ["--setenv", "PYTHONPATH", PYTHON_FOLDER]
    return flags
