"""The one way out of a jail: real programs in a real jail, against servers that stand for the internet."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from core.domain.errors import SandboxUnavailable
from core.domain.network import ANY_HOST, NetworkLimits
from core.ports import Sandbox
from core.tasks import spawn
from core.web_access.guard import AddressGuard
from sandbox.local.egress_policy import EgressConfig, EgressLimits, parse_egress_policy
from sandbox.local.egress_proxy import RESOLUTIONS, EgressProxy
from sandbox.local.thread_network import NOBODY, REFUSED_BYTES_MAX, ThreadNetwork
from tests.integration.sandbox.egress_stage import FakeWebService, fake_web_service, jail_with_a_way_out
from tests.support.sandboxes import run
from tests.support.tls import ENCRYPTED_HELLO, tls_hello, with_extension

EGRESS = EgressConfig(policy=parse_egress_policy("on"))
CURL = "curl -sS --noproxy '' --max-time 20"


@pytest.fixture
async def outside() -> AsyncIterator[FakeWebService]:
    async with fake_web_service() as stage:
        yield stage


@pytest.fixture
async def sandbox(outside: FakeWebService) -> AsyncIterator[Sandbox]:
    async with jail_with_a_way_out(outside.port) as opened:
        yield opened


async def test_curl_reaches_the_internet(sandbox: Sandbox, outside: FakeWebService) -> None:
    done = await run(sandbox, f"{CURL} http://127.0.0.1:{outside.port}/page?x=1#top")
    assert (done.output, done.exit_code) == ("from outside\n", 0)
    assert outside.asked == ["/page?x=1"]
    assert outside.headers[0]["host"] == f"127.0.0.1:{outside.port}"
    assert not [name for name in outside.headers[0] if name.startswith("proxy")]


NOT_PUBLIC = (
    "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://127.1:{port}/", "http://2130706433:{port}/",
    "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://0.0.0.0:{port}/", "http://10.0.0.1/",
    "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://192.168.0.1/", "http://100.64.0.1/",
)  # fmt: skip


async def test_what_is_not_public_is_refused() -> None:
    """The port listens: had it been asked, it would have answered."""
    async with fake_web_service() as host, jail_with_a_way_out() as sandbox:
        for url in NOT_PUBLIC:
            for how in ("", "--proxytunnel"):
                told = f"{CURL} {how} -w '%{{http_code}} %{{http_connect}}' '{url.format(port=host.port)}'"
                assert "403" in (await run(sandbox, told)).output, told
        assert host.asked == []


async def test_a_redirect_leads_no_further_than_an_address(outside: FakeWebService) -> None:
    async with fake_web_service() as private, jail_with_a_way_out(outside.port) as sandbox:
        to = f"http://localhost:{private.port}/secret"
        done = await run(sandbox, f"{CURL} -L 'http://127.0.0.1:{outside.port}/away?to={to}'")
        assert "not on the public internet" in done.output
        assert (len(outside.asked), private.asked) == (1, [])


@pytest.mark.parametrize("setting", ["127.0.0.1", "!localhost"], ids=["listed", "denied"])
async def test_only_the_names_that_the_operator_allows_are_reached(outside: FakeWebService, setting: str) -> None:
    async with jail_with_a_way_out(outside.port, setting=setting) as sandbox:
        good = await run(sandbox, f"{CURL} http://127.0.0.1:{outside.port}/")
        bad = await run(sandbox, f"{CURL} http://localhost:{outside.port}/")
        assert good.output == "from outside\n"
        assert "the operator has not allowed it" in bad.output


async def test_switched_off_there_is_no_way_at_all(outside: FakeWebService) -> None:
    async with jail_with_a_way_out(outside.port, setting="off") as sandbox:
        done = await run(
            sandbox, f"env | grep -ci proxy; {CURL} -x http://127.0.0.1:3128 http://127.0.0.1:{outside.port}/"
        )
        assert done.output.startswith("0\n")
        assert done.exit_code == 7


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"CONNECT example.org HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT example.org:0 HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT example.org:99999 HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT user@example.org:80 HTTP/1.1\r\n\r\n", b"400"),
        (b"GET ftp://example.org/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://user:secret@example.org/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://example.org/ HTTP/1.1\r\nbad header\r\n\r\n", b"400"),
        (b"GET http://example.org/ HTTP/1.1\r\nx: a\r\n folded\r\n\r\n", b"400"),
        (b"GET http://example.org/ HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n", b"400"),
        (b"GET http://example.org/" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET http://surely.invalid/ HTTP/1.1\r\n\r\n", b"502"),
    ],
)
async def test_a_wrong_request_is_refused(served: tuple[str, int], request_head: bytes, status: bytes) -> None:
    answer = await asked(served, request_head)
    assert answer.startswith(b"HTTP/1.1 " + status), answer


async def test_headers_are_meant_for_one_end(outside: FakeWebService, served: tuple[str, int]) -> None:
    await asked(
        served,
        f"GET http://127.0.0.1:{outside.port}/ HTTP/1.1\r\nHost: elsewhere\r\nX-Mine: 1\r\nX-Hop: 1\r\n"
        "Connection: x-hop, content-length\r\nContent-Length: 2\r\nProxy-Authorization: Basic x\r\n\r\nhi".encode(),
    )
    (headers,) = outside.headers
    assert headers["host"] == f"127.0.0.1:{outside.port}"
    assert headers["x-mine"] == "1"
    assert not {"x-hop", "proxy-authorization"} & set(headers)
    assert outside.bodies == [b"hi"]


async def test_a_silent_connection_is_closed(outside: FakeWebService) -> None:
    limits = EgressLimits(idle_seconds=0.3)
    async with jail_with_a_way_out(outside.port, limits=limits) as sandbox:
        done = await run(sandbox, f"{CURL} http://127.0.0.1:{outside.port}/slow")
        assert done.exit_code in (52, 56)


async def test_too_many_bytes_are_cut_and_never_look_whole(outside: FakeWebService) -> None:
    limits = EgressLimits(bytes=1_000_000)
    async with jail_with_a_way_out(outside.port, limits=limits) as sandbox:
        done = await run(sandbox, f"{CURL} -o file 'http://127.0.0.1:{outside.port}/large?bytes=9000000'")
        assert done.exit_code in (18, 56), done


async def test_a_sandbox_has_so_many_bytes_and_no_more(outside: FakeWebService) -> None:
    limits = EgressLimits(total_bytes=1_000_000)
    async with jail_with_a_way_out(outside.port, limits=limits) as sandbox:
        await run(sandbox, f"{CURL} -o file 'http://127.0.0.1:{outside.port}/large?bytes=9000000'")
        done = await run(sandbox, f"{CURL} http://127.0.0.1:{outside.port}/")
        assert "reached its transfer limit" in done.output


async def test_a_program_inside_that_hands_out_something_else_is_not_believed(tmp_path: Path) -> None:
    for made in (
        lambda: os.memfd_create("x"),
        lambda: socket.socket().detach(),
        lambda: socket.socket(socket.AF_UNIX).detach(),
    ):
        one = EgressProxy(EGRESS, ThreadNetwork(tmp_path), label="test")
        descriptor = made()
        socket.send_fds(one.program_socket, [b"x"], [descriptor])
        os.close(descriptor)
        with pytest.raises(SandboxUnavailable):
            one.start()
        await one.close()


async def test_a_program_inside_that_hands_out_nothing_is_not_waited_for(tmp_path: Path) -> None:
    one = EgressProxy(EGRESS, ThreadNetwork(tmp_path), label="test")
    with pytest.raises(SandboxUnavailable):
        one.start()
    await one.close()


@pytest.mark.parametrize(
    ("setting", "good", "bad"),
    [
        ("on", ["example.net", "1.2.3.4"], ["update.googleapis.com"]),
        ("example.net", ["example.net"], ["files.example.net", "notexample.net", "example.net.evil"]),
        ("*.example.net, example.net", ["a.b.example.net", "example.net"], ["notexample.net", "org"]),
        ("!*.example.org", ["example.net", "example.org"], ["a.example.org"]),
        ("on,!example.net", ["x"], ["example.net"]),
        ("off", [], ["example.net", "localhost"]),
    ],
)
def test_the_setting_says_who_is_reached(setting: str, good: list[str], bad: list[str]) -> None:
    policy = parse_egress_policy(setting)
    assert [policy.permits(host) for host in good] == [True] * len(good)
    assert [policy.permits(host) for host in bad] == [False] * len(bad)
    assert policy.is_open == (setting != "off")


@pytest.mark.parametrize("denied", ["127.0.0.1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f000001", "127.1", "localhost"])
async def test_a_denied_address_is_reached_by_no_name(outside: FakeWebService, denied: str, host: str) -> None:
    async with gateway(outside.port, f"on,!{denied}") as address:
        head = f"GET http://{host}:{outside.port}/ HTTP/1.1\r\n\r\n"
        answer = await asked(address, head.encode())
    assert b"403" in answer.split(b"\r\n")[0]
    assert b"the operator has not allowed it" in answer
    assert outside.asked == []


@pytest.mark.parametrize("setting", ["off,example.net", "http://example.net", "a b", "*.", "!"])
def test_a_setting_that_means_nothing_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="not a host name"):
        parse_egress_policy(setting)


async def test_a_lookup_that_nobody_waits_for_keeps_its_place(
    outside: FakeWebService, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_ended, begun, resolve = threading.Event(), list[str](), socket.getaddrinfo

    def resolve_slowly(host: str, *more: Any) -> Any:
        if host.endswith(".example"):
            begun.append(host)
            has_ended.wait(30)
        return resolve("127.0.0.1", *more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_slowly)
    limits = EgressLimits(connect_seconds=0.2)
    async with gateway(outside.port, limits=limits) as address:
        for number in range(3):
            heads = [f"GET http://{number}{x}.example:{outside.port}/ HTTP/1.1\r\n\r\n" for x in "ab"]
            for answer in await asyncio.gather(*(asked(address, one.encode()) for one in heads)):
                assert b"does not answer" in answer
        assert len(begun) == RESOLUTIONS
        has_ended.set()
        head = f"GET http://localhost:{outside.port}/ HTTP/1.1\r\n\r\n"
        assert b"from outside" in await asked(address, head.encode())


@asynccontextmanager
async def gateway(
    port: int, setting: str = "on", limits: EgressLimits | None = None, *, network: NetworkLimits = ANY_HOST
) -> AsyncGenerator[tuple[str, int]]:
    """A gateway without a jail around it; its address for commands. The port of 127.0.0.1 counts as the internet."""
    with TemporaryDirectory() as home:
        async with gateway_and_program(port, setting, limits, network, Path(home)) as (address, _):
            yield address


@asynccontextmanager
async def gateway_and_program(
    port: int, setting: str, limits: EgressLimits | None, network: NetworkLimits, home: Path
) -> AsyncGenerator[tuple[tuple[str, int], socket.socket]]:
    """The gateway's address, and the socket over which the program inside sends the browser's connections."""
    guard = AddressGuard(frozenset({("127.0.0.1", port)}))
    egress = EgressConfig(policy=parse_egress_policy(setting), guard=guard, limits=limits or EgressLimits())
    ThreadNetwork(home).store_limits(network)
    proxy = EgressProxy(egress, ThreadNetwork(home), label="test")
    with socket.create_server(("127.0.0.1", 0)) as listener, proxy.program_socket.dup() as program:
        address = listener.getsockname()
        socket.send_fds(program, [b"x"], [listener.fileno()])
        proxy.start()
        yield address, program
    await proxy.close()


HERE = frozenset({"host:127.0.0.1"})
NOWHERE = frozenset({"host:example.com", "word:127.0.0.1"})


@pytest.mark.parametrize(
    ("setting", "network", "is_browser", "is_reached"),
    [
        ("on", ANY_HOST, False, True),
        ("on", NetworkLimits(commands=HERE), False, True),
        ("on", NetworkLimits(commands=NOWHERE), False, False),
        ("on", NetworkLimits(commands=frozenset()), False, False),
        ("on", NetworkLimits(commands=frozenset()), True, True),
        ("on", NetworkLimits(commands=HERE, browser=NOWHERE), True, False),
        ("on", NetworkLimits(commands=NOWHERE, browser=HERE), True, True),
        ("*,127.0.0.1", NetworkLimits(commands=NOWHERE), False, True),
        ("127.0.0.0", NetworkLimits(commands=HERE), False, False),
    ],
)
async def test_the_limits_of_the_thread_say_who_is_reached(
    tmp_path: Path, outside: FakeWebService, setting: str, network: NetworkLimits, is_browser: bool, is_reached: bool
) -> None:
    head = f"GET http://127.0.0.1:{outside.port}/ HTTP/1.1\r\n\r\n".encode()
    async with gateway_and_program(outside.port, setting, None, network, tmp_path) as (address, program):
        if is_browser:
            program.send(b"nothing")  # costs nothing, and the next one is served
            with socket.create_server(("127.0.0.1", 0)) as gate:
                answering = spawn(asked(gate.getsockname(), head), name="browser")
                connected, _ = await asyncio.to_thread(gate.accept)
                with connected:
                    socket.send_fds(program, [b"browser"], [connected.fileno()])
            answer = await answering
        else:
            answer = await asked(address, head)
    assert answer.startswith(b"HTTP/1.1 200" if is_reached else b"HTTP/1.1 403")
    assert bool(outside.asked) == is_reached


LOCALHOST = NetworkLimits(commands=frozenset({"host:localhost"}))


@pytest.mark.parametrize(
    ("network", "host", "first_bytes", "refused"),
    [
        (LOCALHOST, "localhost", tls_hello("localhost"), None),
        (LOCALHOST, "localhost", tls_hello("LocalHost"), None),
        (LOCALHOST, "localhost", tls_hello("pypi.org"), None),
        (NetworkLimits(commands=HERE), "127.0.0.1", tls_hello(None), None),
        (ANY_HOST, "localhost", tls_hello("other.example"), None),
        (ANY_HOST, "localhost", b"SSH-2.0-client\r\n", None),
        (LOCALHOST, "localhost", tls_hello("other.example"), ("other.example",)),
        (NetworkLimits(commands=HERE), "127.0.0.1", tls_hello("other.example"), ("other.example",)),
        (LOCALHOST, "localhost", tls_hello("localhost").replace(b"localhost", b"local\nost"), ()),
        (LOCALHOST, "localhost", tls_hello("localhost").replace(b"localhost", b"local\xffost"), ()),
        (LOCALHOST, "localhost", with_extension(tls_hello("localhost"), ENCRYPTED_HELLO), ()),
        (LOCALHOST, "localhost", tls_hello(None), ()),
        (LOCALHOST, "localhost", tls_hello("localhost")[:-1], ()),
        (LOCALHOST, "localhost", b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n", ()),
        (LOCALHOST, "localhost", b"SSH-2.0-client\r\n", ()),
        (LOCALHOST, "localhost", b"\x16\x03\x01\x40\x00" + bytes(0x4000), ()),
        (LOCALHOST, "localhost", b"", ()),
    ],
)
async def test_the_site_inside_a_tunnel_is_judged_like_its_host(
    tmp_path: Path, network: NetworkLimits, host: str, first_bytes: bytes, refused: tuple[str, ...] | None
) -> None:
    """One address can serve many sites, such as those of a content delivery network."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, gateway_and_program(port, "on", None, network, tmp_path) as (address, _):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        for byte in first_bytes:  # each may come by itself
            writer.write(bytes([byte]))
        writer.write_eof()
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert (b"".join(received), ThreadNetwork(tmp_path).take_refused_hosts()) == (
        (first_bytes, ()) if refused is None else (b"", refused)
    )


@pytest.mark.parametrize(
    ("later", "received"), [(LOCALHOST, b"beforeafter"), (NetworkLimits(commands=NOWHERE), b"before")]
)
async def test_an_open_connection_is_judged_by_the_limits_that_hold_now(
    tmp_path: Path, later: NetworkLimits, received: bytes
) -> None:
    pieces: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(100):
                pieces.append(piece)
                writer.write(piece)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, gateway_and_program(port, "on", None, ANY_HOST, tmp_path) as (address, _):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"CONNECT localhost:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        ThreadNetwork(tmp_path).store_limits(later)
        writer.write(b"after")
        writer.write_eof()
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert b"".join(pieces) == received


async def test_a_command_cannot_reach_a_host_that_nobody_named(sandbox: Sandbox, outside: FakeWebService) -> None:
    curl = f"{CURL} -w ' %{{http_code}}' http://127.0.0.1:{outside.port}/"
    sandbox.limit_network(NetworkLimits(commands=NOWHERE))
    refused = await run(sandbox, f"{curl}; {curl}")
    assert refused.output.count("Nobody in this thread has named 127.0.0.1") == 2
    by_the_browsers_port = await run(sandbox, f"http_proxy=http://127.0.0.1:3129 {curl}")
    assert by_the_browsers_port.exit_code != 0
    assert sandbox.take_refused_hosts() == ("127.0.0.1",)
    assert sandbox.take_refused_hosts() == ()
    assert outside.asked == []
    for allowed in (NetworkLimits(commands=HERE), ANY_HOST):
        sandbox.limit_network(allowed)
        assert (await run(sandbox, curl)).output == "from outside\n 200"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"commands": 5}', "\xff", "[" * 100_000])
def test_limits_that_cannot_be_read_allow_nobody(tmp_path: Path, content: str) -> None:
    (tmp_path / "network").write_text(content, "latin-1")
    assert ThreadNetwork(tmp_path).limits() == NOBODY


@pytest.mark.parametrize("limits", [NetworkLimits(HERE), NetworkLimits(HERE, NOWHERE), NOBODY, ANY_HOST])
def test_limits_hold_for_every_process(tmp_path: Path, limits: NetworkLimits) -> None:
    ThreadNetwork(tmp_path / "thread").store_limits(NetworkLimits(NOWHERE))
    ThreadNetwork(tmp_path / "thread").store_limits(limits)
    assert ThreadNetwork(tmp_path / "thread").limits() == limits


async def test_nobody_is_asked_about_what_cannot_be_reached(tmp_path: Path) -> None:
    network = ThreadNetwork(tmp_path)
    network.store_limits(NetworkLimits(commands=frozenset()))
    egress = EgressConfig(policy=parse_egress_policy("*,!denied.example"), guard=AddressGuard())
    one = EgressProxy(egress, network, label="test")
    with socket.create_server(("127.0.0.1", 0)) as listener, one.program_socket.dup() as program:
        socket.send_fds(program, [b"x"], [listener.fileno()])
        one.start()
        for place in (
            "denied.example:443",
            "mail.example:25",
            "10.0.0.1:443",
            "[::1]:80",
            "database:5432",
            "other.example:443",
        ):
            await asked(listener.getsockname(), f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
    await one.close()
    assert network.take_refused_hosts() == ("other.example",)


def test_refused_hosts_take_little_room(tmp_path: Path) -> None:
    network = ThreadNetwork(tmp_path)
    for number in range(5_000):
        network.record_refusal(f"{number}.example")
    assert (tmp_path / "refused-hosts").stat().st_size <= REFUSED_BYTES_MAX + 20


@pytest.fixture
async def served(outside: FakeWebService) -> AsyncIterator[tuple[str, int]]:
    async with gateway(outside.port) as address:
        yield address


async def asked(address: tuple[str, int], head: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(head)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer
