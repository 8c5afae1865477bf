"""What a hostile person tries from a jail, with the host and a neighbour looking on: neither notices.

More of the suite: `test_escape` (files, rights, limits), `test_hostile_inside` (a program inside that lies),
`test_egress` (addresses that are not public), `test_archive` (archives and links).
"""

import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.errors import SandboxUnavailable, ToolError
from core.ports import Sandbox
from sandbox.limits import SandboxLimits
from sandbox.local.egress_policy import EgressConfig, parse_egress_policy
from sandbox.local.process_table import is_alive, process_tree
from sandbox.local.provider import LocalSandboxProvider
from tests.support.sandboxes import content, local_jails, pieces, run

MEBIBYTE = 1 << 20
LIMITS = SandboxLimits(memory_bytes=256 * MEBIBYTE, processes=64, workspace_bytes=64 * MEBIBYTE)
EGRESS = EgressConfig(policy=parse_egress_policy("on"))


@pytest.fixture
async def jails() -> AsyncIterator[LocalSandboxProvider]:
    async with local_jails(LIMITS, egress=EGRESS) as provider:
        yield provider


@pytest.fixture
async def hostile(jails: LocalSandboxProvider) -> Sandbox:
    return await jails.open("hostile", fence=1)


@pytest.fixture
async def neighbour(jails: LocalSandboxProvider) -> AsyncIterator[Sandbox]:
    """At the end of each test its files and its shell are what they were."""
    sandbox = await jails.open("neighbour", fence=1)
    await sandbox.files.write("kept", pieces(b"kept"))
    await run(sandbox, "STATE=kept; sleep 100000 & echo $! > pid")
    yield sandbox
    done = await run(sandbox, 'kill -0 $(cat pid) && echo "$STATE"; ls -1')
    assert done.output == "kept\nkept\npid\n"
    assert await content(sandbox, "kept") == b"kept"


async def test_the_hosts_ports_and_sockets_are_not_there(hostile: Sandbox) -> None:
    name = f"threadhand-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = tcp.getsockname()[1]
        code = f"""
import socket
for where in (("127.0.0.1", {port}), ("{socket.gethostname()}", {port})):
    try: socket.create_connection(where, 2); print("reached", where)
    except OSError: pass
try: socket.socket(socket.AF_UNIX).connect("\\0{name}"); print("reached the abstract socket")
except OSError: print("nothing")
"""
        await hostile.files.write("try.py", pieces(code.encode()))
        assert (await run(hostile, "python3 try.py")).output == "nothing\n"


async def test_links_out_of_the_workspace_lead_nowhere(jails: LocalSandboxProvider, hostile: Sandbox) -> None:
    """The neighbour's own path on the host is known to the test; to the jail it would be a guess."""
    await (await jails.open("victim", fence=1)).files.write("secret", pieces(b"of the victim"))
    there = jails._folder / "threads" / "victim" / "workspace"
    for target in (there, there / "secret", "/proc/1/root/workspace/../../victim", "/etc/shadow", "../../victim"):
        done = await run(hostile, f"ln -sfn {target} out; cat out out/secret out/workspace/secret; ls out/")
        assert "of the victim" not in done.output
        for path in ("out", "out/secret"):
            with pytest.raises(ToolError):
                await content(hostile, path)
    assert (there / "secret").read_bytes() == b"of the victim"


async def test_all_bombs_at_once_leave_the_neighbour_its_turn(hostile: Sandbox, neighbour: Sandbox) -> None:
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    bombs = {
        "memory": "python3 -c 'x = [bytearray(2**20) for _ in iter(int, 1)]'",
        "output": "yes $(head -c 3000 /dev/zero | tr '\\0' x)",
        "disk": "while :; do head -c 4M /dev/zero >> big; done",
        "links": "while :; do ln -s / link-$RANDOM$RANDOM; done",
        "fork": ":(){ :|:& };:",
    }
    for name, bomb in bombs.items():
        await run(hostile, bomb, session=name, seconds=0.2)
    for _ in range(5):
        started = time.monotonic()
        assert (await run(neighbour, "echo on")).output == "on\n"
        assert time.monotonic() - started < 30
    await hostile.close()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before


TAKE_THE_STREAM = """
import ctypes, os, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
agent = 2
own = os.pidfd_open(agent)
stream = None
for number in range(3, 30):
    got = libc.syscall(438, own, number, 0)  # pidfd_getfd
    if got >= 0:
        try:
            one = socket.socket(fileno=got)
            one.getpeername()
            if one.family == socket.AF_UNIX and one.type == socket.SOCK_STREAM: stream = one
        except OSError:
            pass
print("stream" if stream else "nothing", flush=True)
if stream:
    os.kill(agent, signal.SIGSTOP)
    try:
        socket.send_fds(stream, [struct.pack(">IBI", 2, 6, 1) + b"{}"], [os.open("/dev/null", 0)] * 100)
        stream.sendall(struct.pack(">IBI", 0xFFFFFFFF, 3, 1) + b"x" * 100000)
    except OSError as error:
        print(error)
"""


async def test_who_takes_the_programs_stream_loses_the_sandbox_and_nothing_else(
    jails: LocalSandboxProvider, hostile: Sandbox, neighbour: Sandbox
) -> None:
    """The jailed user is that of the program inside: it may take its socket, forge answers, and send descriptors."""
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    await hostile.files.write("take.py", pieces(TAKE_THE_STREAM.encode()))
    try:
        done = await run(hostile, "python3 take.py; sleep 5", seconds=30)
        assert done.output.startswith("nothing")  # where ptrace is restricted
    except SandboxUnavailable:
        assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before
    fresh = await jails.open("hostile", fence=1)
    assert (await run(fresh, "echo on")).output == "on\n"


LOOK = """
inode=$(awk '$2 == "0100007F:0C38" && $4 == "0A" { print $10 }' /proc/net/tcp)
for process in /proc/[0-9]*; do ls -l $process/fd 2>/dev/null; done > open
echo "${inode:+listening}" $(grep -c "socket:.$inode." open) $(grep -c socket: open)
"""
BIND = """
import socket
one = socket.socket()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.bind(("127.0.0.1", 3128))
one.listen()
"""


async def test_the_way_out_cannot_be_taken_over(hostile: Sandbox) -> None:
    """The listening socket is in the host's hands alone: nobody inside can accept, close or rebind it."""
    await hostile.files.write("look.sh", pieces(LOOK.encode()))
    listening, holders, others = (await run(hostile, "sh look.sh")).output.split()
    assert (listening, holders) == ("listening", "0")
    assert int(others) <= 3  # the program's own stream, and the browser's way with its socket to the host
    await hostile.files.write("bind.py", pieces(BIND.encode()))
    assert (await run(hostile, "python3 bind.py")).exit_code == 1


async def test_nothing_outlives_the_stop(jails: LocalSandboxProvider, hostile: Sandbox) -> None:
    stubborn = """
import os, signal, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 65):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            os.environ.clear()
            while True: time.sleep(1000)
        os._exit(0)
"""
    await hostile.files.write("stubborn.py", pieces(stubborn.encode()))
    await run(hostile, "python3 stubborn.py; echo 'while :; do sleep 1; done' | setsid sh & disown")
    (jail,) = jails._jails()
    members = process_tree(jail.pid)
    assert len(members) > 5
    await hostile.close()
    # the namespace's first process is left to the machine's, which looks after it in its own time
    assert list(filter(is_alive, members)) == []


async def test_a_name_is_resolved_once_for_a_connection(hostile: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is looked at and private a moment later."""
    asked, resolve = list[str](), socket.getaddrinfo
    answers = iter(["203.0.113.7", "127.0.0.1"])

    def changing(host: str, port: int, *more: Any) -> Any:
        if host != "rebind.example":
            return resolve(host, port, *more)
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    with socket.create_server(("127.0.0.1", 0)) as private:
        private.settimeout(0.1)
        port = private.getsockname()[1]
        await run(hostile, f"curl -s -m 5 http://rebind.example:{port}/", seconds=30)
        with pytest.raises(TimeoutError):
            private.accept()
    assert len(asked) == 1
