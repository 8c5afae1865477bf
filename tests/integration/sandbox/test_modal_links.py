"""Ports of Modal sandboxes at addresses that Modal gives: as a person's browser comes to them."""

from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from grpclib import Status
from yarl import URL

from core.domain.errors import ToolError
from core.ports import Sandbox
from core.tools.publishing import expose_port
from core.tools.tool import ThreadLinks, ToolContext
from tests.fakes import web_inside
from tests.support.modal_stage import Stage
from tests.support.modal_stage import stage as stage
from tests.support.sandboxes import pieces

OPEN = ("*",)


async def serving(sandbox: Sandbox) -> int:
    """Starts a web server inside; answers its port."""
    await sandbox.files.write("web.py", pieces(Path(web_inside.__file__).read_bytes()))
    await sandbox.shell.execute("python3 web.py port", session="web", folder=None, timeout_seconds=0)
    wait = "until [ -s port ]; do sleep 0.02; done; cat port"
    shown = await sandbox.shell.execute(wait, session="wait", folder=None, timeout_seconds=60)
    return int(shown.output)


async def said(sandbox: Sandbox, port: int, port_url: Callable[[int], str | None] = lambda _port: None) -> str:
    async def opened() -> Sandbox:
        return sandbox

    context = ToolContext(thread_id="thread", run_id="r", sandbox=opened, links=ThreadLinks(port_url=port_url))
    return str(await expose_port.run(expose_port.params(port=port), context))


def address_in(text: str) -> URL:
    (found,) = (word for word in text.split() if word.startswith("http"))
    return URL(found)


async def test_a_port_has_an_address_of_modal(stage: Stage) -> None:
    sandbox = await stage.worker(egress=OPEN).open("thread", fence=1)
    port = await serving(sandbox)
    url = address_in(await said(sandbox, port, lambda port: f"http://ours.example.org/{port}"))
    assert url.host == "127.0.0.1"
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(url) as first:
            assert first.status == 200
        async with browser.get(url.with_path("/more").with_query(x="1")) as second:
            told = await second.json()
        assert told["path"] == "/more?x=1"
        async with browser.ws_connect(url.with_path("/ws").with_query(None)) as talk:
            await talk.send_str("hello")
            assert "hello" in await talk.receive_str()


async def test_nobody_comes_in_without_the_token(stage: Stage) -> None:
    sandbox = await stage.worker(egress=OPEN).open("thread", fence=1)
    url = address_in(await said(sandbox, await serving(sandbox)))
    for wrong in (url.with_query(None), url.with_query({"_modal_connect_token": "guessed"})):
        async with aiohttp.ClientSession() as stranger, stranger.get(wrong) as answer:
            assert answer.status == 401


async def test_without_an_address_of_modal_ours_is_told(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    sandbox = await stage.worker(egress=OPEN).open("thread", fence=1)
    port = await serving(sandbox)
    stage.modal.faults.arm("SandboxCreateConnectTokenV2", Status.PERMISSION_DENIED, times=10)
    ours = await said(sandbox, port, lambda port: f"http://ours.example.org/{port}")
    assert f"http://ours.example.org/{port}" in ours
    assert "Modal gives no address" in caplog.text


async def test_a_sandbox_without_a_network_is_not_asked_about(stage: Stage) -> None:
    sandbox = await stage.worker(egress=()).open("thread", fence=1)
    port = await serving(sandbox)
    with pytest.raises(ToolError, match="cannot be exposed"):
        await said(sandbox, port)
    assert "SandboxCreateConnectTokenV2" not in stage.modal.calls
