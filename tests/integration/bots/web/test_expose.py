"""Ports of real sandboxes, reached under names of their own."""

import asyncio
import gzip
import hashlib
import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSCloseCode

from bots.web.links import SignedLinks, exposed_ports_domain, port_label_from_host, sign_port_label
from bots.web.port_proxy import WEBSOCKETS_MAX
from core.domain.errors import ToolError
from core.domain.ids import new_id
from core.ports import Sandbox, SandboxProvider
from core.tools.publishing import expose_port
from core.tools.tool import ThreadLinks, ToolContext
from sandbox.unsafe_process import UnsafeProcessProvider
from storage.sql.stores.conversations import SqlConversations
from tests.fakes import web_inside
from tests.support.sandboxes import local_jails, pieces, reachable_folder
from tests.support.web_stage import Stage, staged

SECRET = b"s" * 32


@dataclass
class Exposed:
    """A thread with a web server in its sandbox."""

    stage: Stage
    thread_id: str
    sandbox: Sandbox
    port: int
    host: str

    def ask(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> Any:
        return self.stage.http.request(
            method, path, headers={"Host": self.host, **(headers or {})}, allow_redirects=False, **more
        )

    async def told(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """What the program inside saw."""
        async with self.ask(method, path, **more) as response:
            assert response.headers["X-Inside"] == "1"
            return await response.json()


@asynccontextmanager
async def sandboxes(kind: str) -> AsyncIterator[SandboxProvider]:
    if kind == "local":
        async with local_jails() as jails:
            yield jails
    else:
        async with reachable_folder() as folder:
            processes = UnsafeProcessProvider(folder)
            yield processes
            await processes.close()


@pytest.fixture(params=["local", "unsafe-process"])
async def exposed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Exposed]:
    async with (
        sandboxes(request.param) as provider,
        staged(tmp_path, sandboxes=provider, links=SignedLinks(SECRET, ""), api_token="our-token") as stage,
    ):
        stage.http.headers["Authorization"] = "Bearer our-token"
        thread_id = await stage.thread()
        sandbox = await provider.open(thread_id, fence=1)
        program = Path(web_inside.__file__).read_bytes()
        await sandbox.files.write("web_inside.py", pieces(program))
        await sandbox.shell.execute("python3 web_inside.py port", session="web", folder=None, timeout_seconds=0)
        wait = "until [ -s port ]; do sleep 0.02; done; cat port"
        shown = await sandbox.shell.execute(wait, session="w", folder=None, timeout_seconds=60)
        port = int(shown.output)
        host = f"{sign_port_label(SECRET, thread_id, port)}.localhost:8700"
        yield Exposed(stage, thread_id, sandbox, port, host)


async def test_the_tool_gives_the_address_of_a_port_that_answers(exposed: Exposed) -> None:
    links = SignedLinks(SECRET, "http://127.0.0.1:8700")

    async def opened_sandbox() -> Sandbox:
        return exposed.sandbox

    context = ToolContext(
        thread_id=exposed.thread_id,
        run_id="r",
        sandbox=opened_sandbox,
        links=ThreadLinks(port_url=lambda port: links.port_url(exposed.thread_id, port)),
    )
    said = await expose_port.run(expose_port.params(port=exposed.port), context)
    assert f"http://{exposed.host}/" in str(said)
    with pytest.raises(ToolError, match=r"Nothing listens on port 1 .* call expose_port again"):
        await expose_port.run(expose_port.params(port=1), context)


async def test_requests_arrive_whole(exposed: Exposed) -> None:
    content = bytes(range(256)) * 8000
    told = await exposed.told("POST", "/a%2Fb%20c/é?x=1&y=%26", data=io.BytesIO(content))
    assert (told["method"], told["path"]) == ("POST", "/a%2Fb%20c/%C3%A9?x=1&y=%26")
    assert (told["length"], told["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())

    async def piecewise() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 10_000

    assert (await exposed.told("PUT", "/", data=piecewise()))["length"] == 500_000
    packed = await exposed.told("POST", "/", data=gzip.compress(content), headers={"Content-Encoding": "gzip"})
    assert (packed["length"], "content-encoding" in packed["headers"]) == (len(content), False)
    assert (await exposed.told("DELETE", "/gone"))["method"] == "DELETE"


async def test_an_answer_is_passed_on_while_it_comes(exposed: Exposed) -> None:
    async with exposed.ask("GET", "/steps") as response:
        assert await response.content.readany() == b"first"
        async with exposed.ask("GET", "/steps?go"):
            pass
        assert await response.content.readany() == b"second"


async def test_nothing_of_ours_reaches_the_program(exposed: Exposed) -> None:
    told = await exposed.told(
        "GET",
        "/",
        headers={
            "Authorization": "Bearer our-token",
            "Cookie": "threadhand_takeover=x; theirs=1",
            "X-Forwarded-For": "198.51.100.7",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "1",
            "Origin": f"http://{exposed.host}",
        },
    )
    headers = told["headers"]
    assert "authorization" not in headers
    assert headers["cookie"] == "theirs=1"
    assert "x-forwarded-for" not in headers
    assert "x-hop" not in headers
    assert headers["host"] == f"localhost:{exposed.port}"
    assert headers["origin"] == f"http://localhost:{exposed.port}"
    assert headers["x-forwarded-host"] == exposed.host


async def test_its_own_login_is_left_to_the_program_and_its_answer_has_no_power_over_other_names(
    exposed: Exposed,
) -> None:
    told = await exposed.told("GET", "/", headers={"Authorization": "Bearer theirs"})
    assert told["headers"]["authorization"] == "Bearer theirs"
    async with exposed.ask("GET", "/cookie") as response:
        assert response.headers["Set-Cookie"] == "a=1; Path=/"
        assert "Strict-Transport-Security" not in response.headers
        assert response.headers["Referrer-Policy"] == "same-origin"
    async with exposed.ask("GET", "/away") as response:
        assert (response.status, response.headers["Location"]) == (302, "/there?x=1")


async def test_websockets_talk_both_ways(exposed: Exposed) -> None:
    async with exposed.stage.http.ws_connect(
        "/ws", headers={"Host": exposed.host}, protocols=("chat", "other")
    ) as socket:
        assert socket.protocol == "chat"
        await socket.send_str("héllo")
        assert await socket.receive_str() == "héllo"
        await socket.send_bytes(b"\x00" * 5000)
        assert await socket.receive_bytes() == b"\x00" * 5000
        await socket.send_str("bye")
        assert (await socket.receive()).data in (1001, None)
    async with exposed.stage.http.ws_connect("/ws", headers={"Host": exposed.host}) as socket:
        await socket.send_str("again")
        assert await socket.receive_str() == "again"


async def test_silent_websockets_keep_nobody_out(exposed: Exposed) -> None:
    async with AsyncExitStack() as stack:

        async def connect() -> ClientWebSocketResponse:
            connecting = exposed.stage.http.ws_connect("/ws", headers={"Host": exposed.host})
            return await stack.enter_async_context(connecting)

        async def echoes(socket: ClientWebSocketResponse) -> bool:
            await socket.send_str("hello")
            return await socket.receive_str() == "hello"

        used, silent, *_ = [await connect() for _ in range(WEBSOCKETS_MAX)]
        assert await echoes(used)
        assert await echoes(await connect())
        assert (await silent.receive()).data == WSCloseCode.TRY_AGAIN_LATER
        assert await echoes(used)
        assert (await exposed.told("GET", "/page"))["path"] == "/page"


async def test_no_route_of_ours_is_on_that_name(exposed: Exposed) -> None:
    for path in ("/healthz", "/metrics", "/api/thread", "/files/x"):
        assert (await exposed.told("GET", path))["path"] == path


async def test_when_nothing_listens_it_is_told(exposed: Exposed) -> None:
    async with exposed.ask("GET", "/hang-up") as response:
        assert response.status == 502
    await exposed.sandbox.shell.terminate("web")
    async with exposed.ask("GET", "/") as response:
        assert response.status == 502
        assert (await response.json())["error"] == "nothing_listens"


async def test_a_name_that_is_not_ours_leads_nowhere(exposed: Exposed) -> None:
    good = exposed.host.partition(".")[0]
    other = sign_port_label(b"x" * 32, exposed.thread_id, exposed.port)
    changed = good[:-1] + ("a" if good[-1] != "a" else "b")
    nobody = sign_port_label(SECRET, new_id(), exposed.port)
    for label in (other, changed, "a" * 55, nobody):
        async with exposed.ask("GET", "/", headers={"Host": f"{label}.localhost"}) as response:
            assert response.status == 404
    async with exposed.ask("GET", "/", headers={"Host": f"{good}.evil.example"}) as response:
        assert response.status == 404
        assert "X-Inside" not in response.headers


async def test_a_name_ends_with_its_thread(exposed: Exposed) -> None:
    assert (await exposed.told("GET", "/"))["path"] == "/"
    await SqlConversations(exposed.stage.database).delete_thread(exposed.thread_id)
    async with exposed.ask("GET", "/") as response:
        assert response.status == 404
        assert "X-Inside" not in response.headers


@pytest.mark.parametrize(
    ("domain", "public_url", "start", "end"),
    [
        ("apps.example.org", "https://bot.example.org", "https://", ".apps.example.org/"),
        ("localhost:9000", "https://bot.example.org", "http://", ".localhost:9000/"),
        ("", "http://127.0.0.1:8700", "http://", ".localhost:8700/"),
    ],
)
def test_the_address_is_a_name_below_the_domain(domain: str, public_url: str, start: str, end: str) -> None:
    url = SignedLinks(SECRET, public_url, domain).port_url(new_id(), 80)
    assert url is not None
    assert url.startswith(start)
    assert url.endswith(end)
    host = url.removeprefix(start).rstrip("/")
    assert port_label_from_host(host, exposed_ports_domain(domain, public_url))


def test_without_names_of_its_own_a_public_server_exposes_nothing() -> None:
    assert SignedLinks(SECRET, "https://bot.example.org").port_url(new_id(), 80) is None
    assert exposed_ports_domain("", "https://bot.example.org") == ""
    assert port_label_from_host(f"{'a' * 55}.localhost", "") == ""


@pytest.mark.parametrize(
    ("line", "status"), [("CONNECT example.com:443 HTTP/1.1", 400), ("GET http://example.com/page?x=1 HTTP/1.1", 200)]
)
async def test_odd_targets_are_no_failure_of_ours(exposed: Exposed, line: str, status: int) -> None:
    async with exposed.stage.http.get("/healthz") as response:
        port = response.url.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{line}\r\nHost: {exposed.host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert int(head.split()[1]) == status
    assert (b'"path": "/page?x=1"' in body) is (status == 200)


async def test_an_upload_that_waits_for_a_word_gets_it(exposed: Exposed) -> None:
    """As curl does with large ones: the program inside need not say it."""
    async with asyncio.timeout(30):
        for path in ("/silent", "/"):
            told = await exposed.told("POST", path, data=b"x" * 2_000, expect100=True)
            assert told["length"] == 2_000
            assert "expect" not in told["headers"]
