"""The way out: what the guard refuses, that nothing gets around it, and the operator's proxy."""

import asyncio
import datetime
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from bots.bootstrap.web_access import build_address_guard
from bots.settings import load_settings
from core.domain.errors import ConfigurationError, ToolError
from core.web_access.download import PROXY_FAILED, USER_AGENT, DownloadLimits, download
from core.web_access.guard import AddressGuard, RefusedAddress, is_refused_address, parse_web_url
from tests.fakes.busy_threads import busy_threads
from tests.fakes.forward_proxy import PASSWORD, RunningProxy, forward_proxy
from tests.fakes.web_service import FakeWebService, endless, fake_web_service, moved, refusal, says, silent
from tests.integration.sandbox.egress_stage import jail_with_a_way_out
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import run

REFUSED = """
127.0.0.1 127.8.8.8 0.0.0.0 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1
100.100.100.200 168.63.129.16 192.0.0.9 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.51.100.7 203.0.113.9
224.0.0.1 224.0.1.1 239.255.255.250 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1 2001:db8::1
2002:7f00:1:: 2002:808:808:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
example.com 127.1 0x7f.0.0.1
"""
PERMITTED = """
8.8.8.8 1.1.1.1 93.184.215.14 172.32.0.1 2606:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::808:808
"""


@pytest.mark.parametrize("address", [*REFUSED.split(), ""])
def test_an_address_of_no_public_place_is_refused(address: str) -> None:
    assert is_refused_address(address)


@pytest.mark.parametrize("address", PERMITTED.split())
def test_an_address_of_the_public_internet_is_permitted(address: str) -> None:
    assert not is_refused_address(address)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_ipv6_forms_of_an_address_are_judged_like_it(number: int) -> None:
    plain = IPv4Address(number)
    for form in (0xFFFF << 32, 0x64FF9B << 96):
        assert is_refused_address(IPv6Address(form + number)) == is_refused_address(plain)


@given(st.sampled_from(["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"]), st.data())
def test_no_address_of_a_closed_network_is_permitted(network: str, data: st.DataObject) -> None:
    known = IPv4Network(network)
    offset = data.draw(st.integers(min_value=0, max_value=known.num_addresses - 1))
    assert is_refused_address(known.network_address + offset)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com",
        "javascript:alert(1)",
        "http://",
        "http://user:word@example.com/",
        "http://user@example.com/",
        "http://example.com:99999/",
        "http://[::1/",
        "https://example.com/" + "x" * 5000,
        "",
    ],
)
def test_what_is_no_web_address_is_told(text: str) -> None:
    with pytest.raises(ToolError):
        parse_web_url(text)


OWN = ["8.8.4.4", "2606:4700::7"]


@pytest.mark.parametrize("address", [*OWN, "::ffff:8.8.4.4", "64:ff9b::808:404"])
def test_a_public_address_of_this_machine_is_refused(address: str) -> None:
    guard = AddressGuard(is_own=lambda known: str(known) in OWN)
    assert not guard.permits(address, 443)
    assert guard.permits("8.8.8.8", 443)
    assert AddressGuard(frozenset({(address, 443)}), is_own=guard.is_own).permits(address, 443)


@pytest.mark.parametrize("address", ["8.8.4.4", "::ffff:8.8.4.4", "64:ff9b::808:404"])
def test_a_network_of_the_setting_is_refused(address: str) -> None:
    settings = load_settings({"THREADHAND_REFUSED_ADDRESSES": "8.8.4.0/24"}, None)
    guard = build_address_guard(settings, ())
    assert not guard.permits(address, 443)
    assert guard.permits("8.8.8.8", 443)


@pytest.mark.parametrize("text", ["8.8.4.1/24", "example.org", "1.2.3.4:80"])
def test_a_malformed_refused_address_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_REFUSED_ADDRESSES"):
        load_settings({"THREADHAND_REFUSED_ADDRESSES": text}, None)


PROBE = """
import asyncio, socket, subprocess
from core.web_access.guard import AddressGuard, RefusedAddress
run = lambda *words: subprocess.run(["ip", *words], check=True)
run("link", "set", "lo", "up")
guard = AddressGuard()
assert guard.permits("11.22.33.44", 80)
run("addr", "add", "11.22.33.44/32", "dev", "lo")
run("addr", "add", "2600:abcd::7/128", "dev", "lo", "nodad")
run("route", "add", "local", "12.0.0.0/24", "dev", "lo")
server = socket.create_server(("0.0.0.0", 0))
port = server.getsockname()[1]
socket.create_connection(("11.22.33.44", port)).close()
for address in ("11.22.33.44", "::ffff:11.22.33.44", "64:ff9b::b16:212c", "2600:abcd::7", "12.0.0.9"):
    assert not guard.permits(address, port), address
assert guard.permits("11.22.33.45", port)
try:
    asyncio.run(guard.resolve_host("11.22.33.44", port))
except RefusedAddress:
    print("refused")
"""


def test_every_interface_is_looked_at_as_it_is_now() -> None:
    """In a network of its own, whose loopback interface gets public addresses."""
    isolated = ["unshare", "--user", "--map-root-user", "--net"]
    if not (shutil.which("ip") and subprocess.run([*isolated, "true"], check=False).returncode == 0):
        lacking("jail", "this machine allows no network namespace")
    done = subprocess.run([*isolated, sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert done.stdout == "refused\n", done.stderr


@pytest.fixture
async def site() -> AsyncIterator[FakeWebService]:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f"page {request.path}", content_type="text/html")

    async with fake_web_service([web.get("/{path:.*}", page)]) as standing:
        yield standing


def open_to(*sites: FakeWebService) -> AddressGuard:
    return AddressGuard(frozenset(site.endpoint for site in sites))


async def test_a_page_is_fetched_under_our_name_without_cookies(site: FakeWebService) -> None:
    site.trouble.append(says(b"1", Set_Cookie="a=b; Path=/"))
    guard = open_to(site)
    await download(f"{site.url}/one", guard)
    fetched = await download(f"{site.url}/two#part", guard)
    assert fetched.content == b"page /two"
    assert (fetched.content_type, fetched.url) == ("text/html", f"{site.url}/two")
    assert site.asked[-1].headers["user-agent"] == USER_AGENT
    assert not any("cookie" in asked.headers for asked in site.asked)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1"]
)
async def test_this_machine_is_not_reached(site: FakeWebService, host: str) -> None:
    with pytest.raises(ToolError):
        await download(f"http://{host}:{site.port}/", AddressGuard())
    assert site.asked == []


async def test_the_allowance_is_for_one_port_only(site: FakeWebService) -> None:
    async with fake_web_service([]) as other:
        with pytest.raises(ToolError, match="not on the public internet"):
            await download(f"{other.url}/", open_to(site))
        assert other.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_leads_to_no_closed_place(site: FakeWebService, host: str, status: int) -> None:
    async with fake_web_service([]) as other:
        site.trouble.append(moved(f"http://{host}:{other.port}/secret", status))
        with pytest.raises(ToolError, match="not on the public internet") as refused:
            await download(f"{site.url}/", open_to(site))
        assert other.asked == []
        assert f":{other.port}/secret is not" in str(refused.value)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x/", "http://u:p@127.0.0.1/", "http://[x/"])
async def test_a_redirect_leads_to_no_other_scheme(site: FakeWebService, target: str) -> None:
    site.trouble.append(moved(target))
    with pytest.raises(ToolError):
        await download(f"{site.url}/", open_to(site))


async def test_redirects_are_followed_and_counted(site: FakeWebService) -> None:
    site.trouble.extend([moved("/a"), moved("b?c=1", 307)])
    fetched = await download(f"{site.url}/start", open_to(site))
    assert fetched.url == f"{site.url}/b?c=1"
    site.trouble.extend([moved("/again")] * 9)
    with pytest.raises(ToolError, match="more than 5 times"):
        await download(f"{site.url}/start", open_to(site))


async def test_a_name_is_judged_by_what_it_resolves_to_when_it_is_connected(site: FakeWebService) -> None:
    guard = open_to(site)
    assert await guard.resolve_host("127.0.0.1", site.port) == ("127.0.0.1",)
    with pytest.raises(RefusedAddress):
        await guard.resolve_host("localhost", 1)
    # past every check of the name: the connector itself refuses the address
    async with ClientSession(connector=AddressGuard().connector()) as session:
        with pytest.raises(OSError, match="public internet"):
            await session.get(f"http://localhost:{site.port}/")
    assert site.asked == []


async def test_names_are_resolved_while_all_shared_threads_are_busy(site: FakeWebService) -> None:
    with busy_threads():
        async with asyncio.timeout(30):
            assert await open_to(site).resolve_host("localhost", site.port) == ("127.0.0.1",)
            fetched = await download(f"http://localhost:{site.port}/one", open_to(site))
    assert fetched.content == b"page /one"


async def test_too_much_is_not_loaded(site: FakeWebService) -> None:
    limits = DownloadLimits(bytes_max=1000)
    for trouble in (endless, says(b"x" * 1001)):
        site.trouble.append(trouble)
        with pytest.raises(ToolError, match="larger than"):
            await download(f"{site.url}/", open_to(site), limits=limits)


async def test_a_packed_page_counts_by_what_is_in_it(site: FakeWebService) -> None:
    import gzip

    site.trouble.append(says(gzip.compress(b"0" * 10_000_000), Content_Encoding="gzip"))
    with pytest.raises(ToolError, match="larger than"):
        await download(f"{site.url}/", open_to(site), limits=DownloadLimits(bytes_max=1_000_000))


async def test_a_silent_page_is_given_up(site: FakeWebService) -> None:
    site.trouble.append(silent)
    with pytest.raises(ToolError, match=r"within 0\.2 s"):
        await download(f"{site.url}/", open_to(site), limits=DownloadLimits(seconds_max=0.2))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "does not let"),
        (404, "no such page"),
        (418, "418"),
        (429, "later"),
        (500, "later"),
        (204, "without content"),
    ],
)
async def test_an_error_says_what_to_do(site: FakeWebService, status: int, said: str) -> None:
    site.trouble.append(refusal(status))
    with pytest.raises(ToolError, match=said):
        await download(f"{site.url}/", open_to(site))


async def test_an_unknown_host_is_told() -> None:
    with pytest.raises(ToolError, match=r"not known|not on the public"):
        await download("http://nowhere.invalid/", AddressGuard())


def certificate(folder: Path) -> Path:
    """A certificate that nobody trusts, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
async def proxy() -> AsyncIterator[RunningProxy]:
    async with forward_proxy() as running:
        yield running


def through(proxy: RunningProxy, *endpoints: tuple[str, int], password: str = PASSWORD) -> AddressGuard:
    return AddressGuard(frozenset(endpoints), proxy=proxy.client(password))


async def test_a_page_is_fetched_through_it_by_its_address(proxy: RunningProxy, site: FakeWebService) -> None:
    site.trouble.append(moved("/two"))
    fetched = await download(f"http://localhost:{site.port}/one", through(proxy, site.endpoint))
    assert (fetched.content, fetched.url) == (b"page /two", f"http://localhost:{site.port}/two")
    assert proxy.targets == [f"GET http://127.0.0.1:{site.port}/{path} HTTP/1.1" for path in ("one", "two")]
    assert site.asked[0].headers["host"] == f"localhost:{site.port}"
    assert not any(name.startswith("proxy") for asked in site.asked for name in asked.headers)
    with pytest.raises(ToolError):  # the site speaks no TLS
        await download(f"https://localhost:{site.port}/", through(proxy, site.endpoint))
    assert proxy.targets[2:] == [f"CONNECT 127.0.0.1:{site.port} HTTP/1.1"]


async def test_what_is_refused_without_it_is_refused_with_it(proxy: RunningProxy, site: FakeWebService) -> None:
    for host in ("127.0.0.1", "localhost", "10.0.0.1"):
        with pytest.raises(ToolError, match="not on the public internet"):
            await download(f"http://{host}:{site.port}/", through(proxy))
    assert (proxy.targets, site.asked) == ([], [])


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_wrong_password_is_told_to_the_operator(
    proxy: RunningProxy, site: FakeWebService, caplog: pytest.LogCaptureFixture, scheme: str
) -> None:
    with pytest.raises(ToolError) as refused:
        await download(f"{scheme}://localhost:{site.port}/", through(proxy, site.endpoint, password="old-secret"))
    assert str(refused.value) == PROXY_FAILED
    assert "THREADHAND_WEB_PROXY" in caplog.text
    assert "old-secret" not in caplog.text


async def test_a_jail_goes_through_it_and_knows_no_password(proxy: RunningProxy, site: FakeWebService) -> None:
    async with jail_with_a_way_out(site.port, proxy=proxy.client()) as sandbox:
        done = await run(sandbox, f"curl -sS --noproxy '' --max-time 20 http://127.0.0.1:{site.port}/one; env")
    assert done.output.startswith("page /one")
    assert PASSWORD not in done.output
    assert proxy.targets == [f"CONNECT 127.0.0.1:{site.port} HTTP/1.1"]


async def test_a_jail_is_told_that_the_proxy_refuses(proxy: RunningProxy, site: FakeWebService) -> None:
    async with jail_with_a_way_out(site.port, proxy=proxy.client("wrong")) as sandbox:
        done = await run(sandbox, f"curl -sS --noproxy '' --max-time 20 http://127.0.0.1:{site.port}/one")
    assert done.output == "The proxy of this installation does not work.\n"


def test_it_comes_from_the_settings() -> None:
    settings = {
        "THREADHAND_WEB_PROXY": "http://proxy.example.com:3128",
        "THREADHAND_WEB_PROXY_USER": "alice",
        "THREADHAND_WEB_PROXY_PASSWORD": "hidden-word",
    }
    loaded = load_settings(settings, None)
    proxy = build_address_guard(loaded, ()).proxy
    assert proxy is not None
    assert (proxy.url, proxy.user, proxy.password) == ("http://proxy.example.com:3128", "alice", "hidden-word")
    assert "hidden-word" not in f"{loaded!r} {proxy!r} {build_address_guard(loaded, ())!r}"


@pytest.mark.parametrize("server", ["proxy.example.com", "socks5://h:1", "http://h", "http://u:p@h:80", "http://h:x"])
def test_a_proxy_of_another_form_is_refused(server: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_WEB_PROXY") as refused:
        load_settings({"THREADHAND_WEB_PROXY": server}, None)
    assert "u:p" not in str(refused.value)


async def test_the_name_of_an_encrypted_page_stays_in_the_tunnel(proxy: RunningProxy, tmp_path: Path) -> None:
    names = list[str | None]()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ToolError, match="no valid certificate"):
            await download(f"https://localhost:{port}/", through(proxy, ("127.0.0.1", port)))
    assert (names, proxy.targets) == (["localhost"], [f"CONNECT 127.0.0.1:{port} HTTP/1.1"])
