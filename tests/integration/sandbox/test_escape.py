"""What a jailed command tries against the machine and its neighbours, and does not get."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from core.domain.errors import SandboxUnavailable
from core.ports import Sandbox
from sandbox.limits import SandboxLimits
from sandbox.local.egress_policy import EgressConfig, parse_egress_policy
from sandbox.local.provider import LocalSandboxProvider
from tests.requirements_of_the_machine import lacking
from tests.support.all_sandboxes import clear
from tests.support.sandboxes import local_jails, pieces, run

MEBIBYTE = 1 << 20
LIMITS = SandboxLimits(
    memory_bytes=256 * MEBIBYTE, processes=64, workspace_bytes=64 * MEBIBYTE, temporary_bytes=32 * MEBIBYTE
)
EGRESS = EgressConfig(policy=parse_egress_policy("on"))
IN_SHARED_JAIL = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def jail_of_module() -> AsyncIterator[Sandbox]:
    async with local_jails(LIMITS, egress=EGRESS) as provider:
        yield await provider.open("shared", fence=1)


@pytest_asyncio.fixture(loop_scope="module")
async def shared_jail(jail_of_module: Sandbox) -> AsyncIterator[Sandbox]:
    """A jail for tests that do not break it. Its workspace is emptied after each test."""
    yield jail_of_module
    await clear(jail_of_module)


@pytest.fixture
async def jails() -> AsyncIterator[LocalSandboxProvider]:
    async with local_jails(LIMITS) as provider:
        yield provider


@pytest.fixture
async def sandbox(jails: LocalSandboxProvider) -> Sandbox:
    return await jails.open("thread", fence=1)


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "/root", "/work", "/sys", "/boot", "/proc/1/root/root", "/var/lib", "/home/user/../../root",
     "/proc/sys/kernel/core_pattern_of_host", "/dev/sda", "/dev/vda", "/dev/mem", "/dev/kmsg", "/run/docker.sock"],
)  # fmt: skip
@IN_SHARED_JAIL
async def test_the_hosts_files_are_not_there(shared_jail: Sandbox, path: str) -> None:
    done = await run(shared_jail, f"test -e {path} && ls -la {path}")
    assert done.exit_code != 0, done.output


@pytest.mark.parametrize(
    "path", ["/x", "/etc/x", "/usr/bin/x", "/opt/threadhand/agent.py", "/proc/sys/kernel/hostname",
             "/proc/sysrq-trigger", "/opt/threadhand/x", "/etc/passwd", "/run/x"],
)  # fmt: skip
@IN_SHARED_JAIL
async def test_the_system_cannot_be_written(shared_jail: Sandbox, path: str) -> None:
    done = await run(shared_jail, f"echo x >> {path}")
    assert done.exit_code == 1, done.output


@pytest.mark.parametrize(
    "command",
    [
        "unshare -U true",
        "unshare -Urm true",
        "mount -t tmpfs x /tmp",
        "mount --bind /usr /tmp",
        "umount /workspace",
        "chroot / true",
        "nsenter -t 1 -m true",
        "mknod /workspace/disk b 8 0",
        "chown 0 /workspace",
        "setpriv --reuid=0 true",
        "su -c true",
        "hostname other",
        "python3 -c 'import os; os.setuid(0)'",
        "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
        "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'",
        "python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 2)'",
        "python3 -c 'import socket; socket.create_connection((\"169.254.169.254\", 80), 2)'",
        "python3 -c 'import fcntl; fcntl.ioctl(0, 0x5412, b\"x\")'",
        "python3 -c 'import os; os.nice(-5)'",
        "ulimit -u 100000",
        "cat /proc/1/environ | tr '\\0' '\\n' | grep -v '^$'",
        "ls /proc/1/root/root /proc/1/cwd/../root",
        "cat /proc/kcore | head -c 1",
        "cat /proc/kmsg | head -c 1 | grep .",
        "dmesg | grep .",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo -1000 > /proc/self/oom_score_adj",
        "echo x > /proc/1/comm",
        "echo 0 > /proc/1/ns/net",
        "ln /usr/bin/env /workspace/hard",
        "ln /opt/threadhand/agent.py /workspace/hard",
        "python3 -c 'import os; os.open(\"/proc/self/exe\", os.O_RDWR)'",
        'python3 -c \'import os; os.open("/workspace", os.O_RDONLY); os.chroot(".")\'',
        "date -s 2001-01-01",
        "python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))'",
    ],
)
@IN_SHARED_JAIL
async def test_more_rights_are_not_to_be_had(shared_jail: Sandbox, command: str) -> None:
    done = await run(shared_jail, f"set -o pipefail; {command}", session="tries", seconds=30)
    assert done.exit_code not in (0, None), done
    assert "not found" not in done.output


@pytest.mark.parametrize(
    ("number", "name"), [(321, "bpf"), (425, "io_uring_setup"), (250, "keyctl"), (272, "unshare"), (165, "mount"),
                         (323, "userfaultfd"), (298, "perf_event_open"), (304, "open_by_handle_at"),
                         (467, "open_tree_attr"), (447, "memfd_secret"), (101, "ptrace"), (438, "pidfd_getfd"),
                         (310, "process_vm_readv"), (444, "landlock_create_ruleset"), (300, "fanotify_init")],
)  # fmt: skip
@IN_SHARED_JAIL
async def test_the_kernels_dangerous_calls_are_refused(shared_jail: Sandbox, number: int, name: str) -> None:
    if os.uname().machine != "x86_64":
        lacking("jail", f"the numbers of the calls are those of x86_64, not {os.uname().machine}")
    call = f"r = c.syscall({number}, 0, 0, 0, 0, 0)"
    code = f"import ctypes; c = ctypes.CDLL(None, use_errno=True); {call}; print(r, ctypes.get_errno())"
    done = await run(shared_jail, f"python3 -c '{code}'")
    assert done.output == "-1 1\n", name


@IN_SHARED_JAIL
async def test_the_process_has_no_rights_and_no_descriptors(shared_jail: Sandbox) -> None:
    status = (await run(shared_jail, "cat /proc/self/status")).output
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    descriptors = (await run(shared_jail, "sh -c 'ls -l /proc/$$/fd'")).output
    assert "socket:" not in descriptors
    assert "memfd" not in descriptors


@IN_SHARED_JAIL
async def test_the_devices_are_the_harmless_ones(shared_jail: Sandbox) -> None:
    found = (await run(shared_jail, "find /dev -type b -o -type c | sort")).output.split()
    harmless = {"console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"}
    assert {Path(path).name for path in found if not path.startswith("/dev/pts/")} <= harmless
    assert (await run(shared_jail, "grep -c : /proc/net/dev; grep -c lo: /proc/net/dev")).output == "1\n1\n"


@IN_SHARED_JAIL
async def test_setuid_files_give_nothing(shared_jail: Sandbox) -> None:
    done = await run(shared_jail, "cp /usr/bin/id . && chmod 6755 id && ./id -u && find /usr/bin/su -perm -4000; id -u")
    assert set(done.output.split()) <= {"1000", "/usr/bin/su"}
    assert (await run(shared_jail, "grep -c nosuid /proc/self/mountinfo")).output != "0\n"


async def test_the_environment_holds_nothing_of_ours(
    jails: LocalSandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret-of-the-host")
    sandbox = await jails.open("fresh", fence=1)
    found = await run(sandbox, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'")
    assert "xoxb" not in found.output
    for name in ("VIRTUAL_ENV", "PYTEST", str(Path.cwd()), str(Path.home())):
        assert name not in found.output


async def test_another_threads_workspace_cannot_be_found(jails: LocalSandboxProvider) -> None:
    first = await jails.open("first", fence=1)
    second = await jails.open("second", fence=1)
    await first.files.write("secret.txt", pieces(b"of the first"))
    search = "find / -name secret.txt 2>/dev/null; ls /proc | grep -c '^[0-9]'"
    found = (await run(second, search)).output.split()
    assert len(found) == 1
    assert int(found[0]) < 10
    folder = jails._workspaces._folder
    owners = {(folder / name / "workspace").stat().st_uid for name in ("first", "second")}
    if os.geteuid() == 0:
        assert len(owners) == 2
        assert 0 not in owners
    assert (folder / "first" / "workspace").stat().st_mode & 0o777 == 0o700


async def test_the_hosts_processes_are_out_of_reach(sandbox: Sandbox) -> None:
    assert (await run(sandbox, f"kill -0 {os.getpid()}")).exit_code == 1
    with pytest.raises(SandboxUnavailable):
        await run(sandbox, "kill -9 -1; sleep 5")


async def test_a_fork_bomb_stops_at_the_limit_and_can_be_ended(sandbox: Sandbox) -> None:
    before = host_processes()
    await run(sandbox, ":(){ :|:& };:", seconds=1)
    assert host_processes() - before < 2 * LIMITS.processes
    await sandbox.shell.terminate("main")
    assert (await run(sandbox, "echo alive", session="other")).output == "alive\n"


async def test_a_memory_bomb_is_killed_alone(sandbox: Sandbox) -> None:
    await run(sandbox, "echo before", session="neighbour")
    done = await run(sandbox, "python3 -c 'x = bytearray(2**30); print(1)'", seconds=30)
    assert done.exit_code == 137
    after = await run(sandbox, "echo after", session="neighbour")
    assert after.output == "after\n"


async def test_a_full_temporary_folder_is_the_commands_problem(sandbox: Sandbox) -> None:
    done = await run(sandbox, "head -c 100M /dev/zero > /tmp/full")
    assert "No space left" in done.output
    again = await run(sandbox, "seq 100000 | tail -1; rm /tmp/full; echo on")
    assert "on\n" in again.output or (await run(sandbox, "rm /tmp/full; echo on")).output == "on\n"


def host_processes() -> int:
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
