"""pip and the browser in a jail, through the proxy that their environment names."""

import io
import socket
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from core.domain.network import NetworkLimits
from core.ports import Sandbox
from core.web_access.guard import AddressGuard
from sandbox.local.egress_policy import EgressConfig, parse_egress_policy
from tests.integration.sandbox.egress_stage import fake_web_service, jail_with_a_way_out
from tests.requirements_of_the_machine import lacking
from tests.support.sandboxes import local_jails, run
from tests.support.web import serve_http

HERE = "outside.example"
WHEEL = "parcel-1.0-py3-none-any.whl"


def there(port: int, path: str) -> str:
    """An address outside the jail, which is a stand-in of this test."""
    return str(URL.build(scheme="http", host=HERE, port=port, path=path))


@asynccontextmanager
async def registry() -> AsyncGenerator[int]:
    """One package for pip; answers the port."""
    app = web.Application()

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=f'<a href="/{WHEEL}">{WHEEL}</a>', content_type="text/html")

    async def wheel(_: web.Request) -> web.Response:
        return web.Response(body=packed_wheel())

    app.add_routes([web.get("/simple/parcel/", index), web.get(f"/{WHEEL}", wheel)])
    async with serve_http(app) as url:
        yield int(url.rpartition(":")[2])


def packed_wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("parcel.py", "SAID = 'from the parcel'\n")
        about = "parcel-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: parcel\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return made.getvalue()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up; one of them leads to this machine."""
    found, resolve = list[str](), socket.getaddrinfo

    def noted(host: str, *more: Any) -> Any:
        found.append(host)
        return resolve("127.0.0.1" if host == HERE else host, *more)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    return found


async def needs(sandbox: Sandbox, command: str) -> None:
    if (await run(sandbox, command)).exit_code != 0:
        lacking("jail", f"{command} does not work in it")


@pytest.mark.usefixtures("asked")
async def test_pip_installs_and_what_it_installs_stays() -> None:
    async with registry() as port, jail_with_a_way_out(port) as sandbox:
        await needs(sandbox, "python3 -m pip --version")
        told = f"PIP_INDEX_URL={there(port, '/simple/')} PIP_TRUSTED_HOST={HERE}"
        install = f"{told} python3 -m pip install -q parcel"
        done = await run(sandbox, install, seconds=60)
        assert done.exit_code == 0, done.output
        found = await run(sandbox, "python3 -c 'import parcel; print(parcel.__file__, parcel.SAID)'")
        assert found.output.startswith("/workspace/.local/")
        assert found.output.endswith("from the parcel\n")


ASK_THE_BROWSER = """
import glob, socket
(path,) = glob.glob("/tmp/threadhand-*-browser/socket")
browser = socket.socket(socket.AF_UNIX)
browser.connect(path)
browser.recv(1) or exit("the browser has hung up")
""".replace("\n", "; ").strip("; ")


async def test_the_browser_goes_through_the_proxy_and_calls_nobody_by_itself(asked: list[str]) -> None:
    async with fake_web_service() as service:
        guard = AddressGuard(frozenset({("127.0.0.1", service.port)}))
        egress = EgressConfig(policy=parse_egress_policy("on"), guard=guard)
        async with local_jails(egress=egress) as jails:
            if jails.browser_unavailable_reason:
                lacking("chromium", jails.browser_unavailable_reason)
            sandbox = await jails.open("thread", fence=1)
            sandbox.limit_network(NetworkLimits(commands=frozenset()))
            for path in ("/one", "/two", "/one"):
                url = there(service.port, path)
                seen = await sandbox.browser.act("navigate_to", {"url": url}, timeout_seconds=60)
                assert seen.error is None, seen
            ask = f"timeout 5 python3 -c '{ASK_THE_BROWSER}'"
            for command in (f"curl -sS -m 9 -x http://127.0.0.1:3129 {there(service.port, '/stolen')}", ask):
                done = await run(sandbox, f"export THREADHAND_SHELL=browser; {command}")
                assert done.exit_code != 0, done
                assert "Error" not in done.output, done
            sandbox.limit_network(NetworkLimits(commands=frozenset(), browser=frozenset()))
            await sandbox.browser.act("navigate_to", {"url": there(service.port, "/three")}, timeout_seconds=60)
            assert HERE in sandbox.take_refused_hosts()
    assert "/three" not in service.asked
    assert "/stolen" not in service.asked
    assert {"/one", "/two"} <= set(service.asked)
    assert set(asked) <= {HERE, "127.0.0.1"}
