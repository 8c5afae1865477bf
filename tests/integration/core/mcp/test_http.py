"""Servers over streamable HTTP and SSE: headers, restarts, dropped streams, hostile answers."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web as aiohttp_web

from core.mcp.secrets import REDACTED
from core.mcp.settings import parse_servers
from core.tasks import spawn
from tests.support.mcp_servers import HttpFake, MakeGuest, http_fake
from tests.support.waiting import until
from tests.support.web import serve_http


async def test_a_call_goes_through(guest_of: MakeGuest, web: HttpFake) -> None:
    guest = guest_of(web.config())
    assert "mcp_fake_echo" in await guest.look()
    assert await guest.output("echo", text="over the web") == "over the web"


async def test_headers_with_secrets_reach_the_server_and_no_log(
    guest_of: MakeGuest, web: HttpFake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = f"fake: {{url: '{web.url}?key=${{KEY}}', transport: {web.kind}, headers: {{X-Key: 'a ${{KEY}}'}}}}"
    guest = await guest_of(*parse_servers(f"servers: {{{text}}}", {"KEY": "s3cret"})).ready()
    assert await guest.output("headers") == REDACTED, "it came, and was taken out of the answer"
    await guest.servers.close()
    assert "s3cret" not in caplog.text


async def test_a_server_that_dies_in_a_call_is_one_error_and_is_found_again(guest_of: MakeGuest, web: HttpFake) -> None:
    guest = await guest_of(web.config()).ready()
    assert "gave no result" in await guest.error("die")
    await web.start()
    assert await guest.output("echo", text="back") == "back"


Answer = Callable[[aiohttp_web.Request], Awaitable[aiohttp_web.StreamResponse]]


@pytest.fixture
async def site() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Serves whatever a test answers; gives the address."""
    async with AsyncExitStack() as stack:

        async def serve(answer: Answer) -> str:
            return f"{await stack.enter_async_context(serve_http(answer))}/mcp"

        yield serve


Site = Callable[[Answer], Awaitable[str]]


def config(url: str, transport: str = "http", **more: object) -> str:
    return json.dumps({"servers": {"fake": {"url": url, "transport": transport, **more}}})


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"x" * (9 * 1024 * 1024), {"content-type": "application/json"}),
        (b"\x1f\x8b", {"content-type": "application/json", "content-encoding": "gzip"}),
        (b'{"jsonrpc": "2.0"', {"content-type": "application/json"}),
        (b"data: " + b"x" * (9 * 1024 * 1024) + b"\n\n", {"content-type": "text/event-stream"}),
        (b"<html>", {"content-type": "text/html"}),
    ],
    ids=["too large", "compressed", "half", "event too large", "a web page"],
)
async def test_nonsense_instead_of_an_answer_is_no_connection(
    guest_of: MakeGuest, site: Site, body: bytes, headers: dict[str, str]
) -> None:
    async def answer(_request: aiohttp_web.Request) -> aiohttp_web.Response:
        return aiohttp_web.Response(body=body, headers=headers)

    guest = guest_of(*parse_servers(config(await site(answer), connect_timeout_seconds=10), {}))
    assert await guest.look() == []


async def test_a_redirect_to_elsewhere_is_not_followed(guest_of: MakeGuest, site: Site) -> None:
    seen: list[str] = []

    async def steal(request: aiohttp_web.Request) -> aiohttp_web.Response:
        seen.append(request.headers.get("x-key", ""))
        return aiohttp_web.Response(status=500)

    elsewhere = await site(steal)

    async def answer(_request: aiohttp_web.Request) -> aiohttp_web.Response:
        return aiohttp_web.Response(status=307, headers={"location": elsewhere})

    text = config(await site(answer), headers={"X-Key": "s3cret"})
    guest = guest_of(*parse_servers(text, {}))
    assert await guest.look() == []
    assert seen == []


async def test_a_dropped_stream_is_an_error_at_once_and_the_next_call_works(
    guest_of: MakeGuest, tmp_path: Path
) -> None:
    async with http_fake("sse") as fake, _Valve(fake.port) as valve:
        guest = await guest_of(*parse_servers(config(valve.url, "sse"), {})).ready()
        started = tmp_path / "started"
        call = spawn(guest.error("hang", started=str(started)), name="call")
        await until(started.exists)
        valve.drop()
        assert "the connection ended before its answer" in await call
        assert await guest.output("echo", text="back") == "back"


class _Valve:
    """Passes bytes to a port on this machine until it is told to drop everything."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "_Valve":
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/sse"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.drop()
        self._server.close()

    def drop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers += [writer, inner_writer]
        await asyncio.gather(self._pump(reader, inner_writer), self._pump(inner_reader, writer), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
        writer.close()


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("status", [401, 404, 500])
async def test_a_server_that_refuses_is_left_out_with_one_line(
    guest_of: MakeGuest, site: Site, status: int, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(_request: aiohttp_web.Request) -> aiohttp_web.Response:
        return aiohttp_web.Response(status=status)

    url = await site(answer)
    guest = guest_of(*parse_servers(config(url, transport), {}))
    assert await guest.look() == []
    assert await guest.look() == []
    said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("the MCP server fake cannot be reached, its tools are left out: ")
