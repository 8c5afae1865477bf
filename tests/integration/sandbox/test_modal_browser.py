"""The browser in sandboxes at Modal, in a simulated one."""

from collections.abc import AsyncIterator
from io import BytesIO

import pytest
from PIL import Image

from core.ports import BrowserResult, Sandbox
from core.web_access.forward_proxy import parse_forward_proxy
from sandbox.modal.provider import ModalSandboxProvider
from tests.support.modal_stage import Stage, modal_stage
from tests.support.narrow import require
from tests.support.sandboxes import content, pieces, run

SECONDS = 60.0
PAGE = b"<!doctype html><meta charset=utf-8><title>Figures</title><button>Press</button><p>North: 2700"


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with modal_stage(jailed=True, with_browser=True) as staged:
        yield staged


async def opened(provider: ModalSandboxProvider, fence: int = 1) -> Sandbox:
    return await provider.open("thread", fence=fence)


async def act(sandbox: Sandbox, action: str, **arguments: str | int | bool) -> BrowserResult:
    return await sandbox.browser.act(action, {**arguments}, timeout_seconds=SECONDS)


async def test_a_page_is_opened_read_and_pictured(stage: Stage) -> None:
    sandbox = await opened(stage.worker())
    await sandbox.files.write("page.html", pieces(PAGE))
    seen = await act(sandbox, "navigate_to", url="/workspace/page.html")
    assert seen.error is None
    assert seen.state is not None
    assert seen.state.title == "Figures"
    assert [line.split("] ")[1] for line in seen.state.elements] == ['<button> "Press"']
    assert seen.state.picture.startswith(b"\xff\xd8\xff")
    assert "North: 2700" in (await act(sandbox, "read_page")).said
    saved = await act(sandbox, "screenshot", file_path="page.png")
    assert saved.error is None
    with Image.open(BytesIO(await content(sandbox, "page.png"))) as picture:
        assert picture.size == (1280, 800)


async def test_it_stays_logged_in_when_the_sandbox_was_stopped_and_restored(stage: Stage) -> None:
    worker = stage.worker()
    sandbox = await opened(worker)
    await sandbox.files.write("server.py", pieces(SERVER))
    await served(sandbox)
    seen = await act(sandbox, "navigate_to", url="http://localhost:8000/")
    assert seen.state is not None
    assert seen.state.title == "a stranger"
    await sandbox.close()
    assert stage.living == []
    again = await opened(stage.worker(), fence=2)
    await served(again)
    seen = await act(again, "navigate_to", url="http://localhost:8000/")
    assert require(seen.state).title == "known"
    left = await again.shell.execute(
        "ls -d /tmp/threadhand-*-browser | wc -l", session="main", folder=None, timeout_seconds=30
    )
    assert left.output.strip() == "1"


SERVER = b"""
from http.server import BaseHTTPRequestHandler, HTTPServer
class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        who = "known" if "seen=yes" in self.headers.get("Cookie", "") else "a stranger"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Set-Cookie", "seen=yes")
        self.end_headers()
        self.wfile.write(f"<title>{who}</title>".encode())
server = HTTPServer(("127.0.0.1", 8000), Site)
print("up", flush=True)
server.serve_forever()
"""


async def served(sandbox: Sandbox, program: str = "server.py") -> None:
    started = await sandbox.shell.execute(f"python3 {program}", session="site", folder=None, timeout_seconds=0)
    while "up" not in started.output:
        assert started.exit_code is None, started.output
        started = await sandbox.shell.check("site", timeout_seconds=0.1)


PROXY = """\
import base64, http.server
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_known = self.headers["Proxy-Authorization"] == "Basic " + base64.b64encode(b"alice:hidden-word").decode()
        self.send_response(200 if is_known else 407)
        if not is_known:
            self.send_header("Proxy-Authenticate", "Basic")
        body = f"<title>{self.path} by proxy</title>".encode() if is_known else b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", 8001), Proxy)
print("up", flush=True)
server.serve_forever()
"""


async def test_it_uses_the_proxy_whose_password_no_list_of_programs_shows(stage: Stage) -> None:
    proxy = parse_forward_proxy("http://127.0.0.1:8001", "alice", "hidden-word")
    sandbox = await opened(stage.worker(browser_proxy=proxy))
    await sandbox.files.write("proxy.py", pieces(PROXY.encode()))
    await served(sandbox, "proxy.py")
    seen = await act(sandbox, "navigate_to", url="http://shop.example/")
    assert require(seen.state).title == "http://shop.example/ by proxy"
    done = await run(sandbox, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "chrom" in done.output
    assert "hidden-word" not in done.output
