"""Connections to ports inside, in every real provider."""

import asyncio
import hashlib

import pytest

from core.domain.errors import ToolError
from core.ports import PortStream, Sandbox
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import pieces, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = """
import hashlib, os, socket, sys, threading, time
family = socket.AF_INET6 if "6" in sys.argv[1:] else socket.AF_INET
server = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
def serve(peer):
    with peer:
        word = peer.recv(5)
        if word == b"late ":
            while not os.path.exists("reads"):
                time.sleep(0.01)
            word = peer.recv(5)
        if word == b"echo ":
            while piece := peer.recv(65536):
                peer.sendall(piece)
        elif word == b"bulk ":
            for number in range(64):
                peer.sendall(bytes([number]) * 65536)
        elif word == b"hash ":
            length = int(peer.recv(10))
            digest = hashlib.sha256()
            while length:
                piece = peer.recv(65536)
                length -= len(piece)
                digest.update(piece)
            peer.sendall(digest.hexdigest().encode())
def accept():
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
open("port", "w").write(str(server.getsockname()[1]))
threading.Event().wait()
"""


async def serving(sandbox: Sandbox, *, ipv6: bool = False) -> int:
    """Starts the program inside; answers its port."""
    await sandbox.files.write("server.py", pieces(SERVER.encode()))
    kind = "6" if ipv6 else "4"
    await sandbox.shell.execute(
        f"rm -f port; python3 server.py {kind}", session="server", folder=None, timeout_seconds=0
    )
    wait = "until [ -s port ]; do sleep 0.02; done; cat port"
    shown = await sandbox.shell.execute(wait, session="wait", folder=None, timeout_seconds=30)
    return int(shown.output)


async def everything(stream: PortStream) -> bytes:
    content = bytearray()
    while piece := await stream.read(100_000):
        content += piece
    return bytes(content)


async def test_what_is_sent_comes_back(sandbox: Sandbox) -> None:
    stream = await sandbox.connect(await serving(sandbox))
    await stream.write(b"echo hello")
    assert await stream.read(100) == b"hello"
    await stream.write(b"more")
    assert await stream.read(2) + await stream.read(100) == b"more"
    stream.close()


async def test_much_data_arrives_whole_both_ways(sandbox: Sandbox) -> None:
    port = await serving(sandbox)
    down = await sandbox.connect(port)
    await down.write(b"bulk ")
    assert await everything(down) == b"".join(bytes([number]) * 65536 for number in range(64))
    down.close()
    up = await sandbox.connect(port)
    content = bytes(range(256)) * 12_000
    await up.write(b"hash " + b"%010d" % len(content) + content)
    assert await everything(up) == hashlib.sha256(content).hexdigest().encode()
    up.close()


async def test_an_upload_waits_for_a_program_that_reads_late(sandbox: Sandbox) -> None:
    stream = await sandbox.connect(await serving(sandbox))
    content = bytes(range(256)) * 60_000
    sending = asyncio.ensure_future(stream.write(b"late " + b"hash " + b"%010d" % len(content) + content))
    await run(sandbox, "sleep 0.5")  # others are not held up
    assert not sending.done()
    await run(sandbox, "touch reads")
    await sending
    assert await everything(stream) == hashlib.sha256(content).hexdigest().encode()
    stream.close()


async def test_a_port_where_nobody_listens_is_told(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="Nothing listens on port 1 "):
        await sandbox.connect(1)
    for port in (0, -1, 65_536):
        with pytest.raises(ToolError, match="is no port"):
            await sandbox.connect(port)


async def test_the_port_of_the_sandboxs_own_proxy_is_not_handed_out(sandbox: Sandbox) -> None:
    with pytest.raises(ToolError, match="belongs to the sandbox itself"):
        await sandbox.connect(3128)


async def test_ipv6_is_found_too(sandbox: Sandbox, request: pytest.FixtureRequest) -> None:
    found = await run(sandbox, "cat /proc/net/if_inet6")
    if "docker" in request.node.name and not found.output:
        lacking("docker", "this engine gives its containers no ::1")
    stream = await sandbox.connect(await serving(sandbox, ipv6=True))
    await stream.write(b"echo six")
    assert await stream.read(100) == b"six"
    stream.close()


async def test_the_end_of_the_program_is_the_end_of_its_connections(sandbox: Sandbox) -> None:
    stream = await sandbox.connect(await serving(sandbox))
    await stream.write(b"echo x")
    assert await stream.read(100) == b"x"
    await sandbox.shell.terminate("server")
    assert await stream.read(100) == b""
    with pytest.raises(BrokenPipeError):
        await stream.write(b"x")
    stream.close()
