"""The operator's proxy: pages and jails reach the internet through it, and only checked addresses."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bots.bootstrap.web_access import build_address_guard
from bots.settings import load_settings
from core.domain.errors import ConfigurationError, ToolError
from core.web_access.download import PROXY_FAILED, download
from core.web_access.guard import AddressGuard
from tests.fakes.forward_proxy import PASSWORD, RunningProxy, forward_proxy
from tests.fakes.web_service import FakeWebService, fake_web_service, moved
from tests.integration.sandbox.egress_stage import jail_with_a_way_out
from tests.support.sandboxes import run


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


@pytest.fixture
async def site() -> AsyncIterator[FakeWebService]:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f"page {request.path}", content_type="text/html")

    async with fake_web_service([web.get("/{path:.*}", page)]) as standing:
        yield standing


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
