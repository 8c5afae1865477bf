"""Who may call the HTTP server: connections that keep nobody out, tokens, and how it refuses."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from bots.web.app import serve_app
from bots.web.auth import API_TOKEN, check_exposure
from bots.web.connection_limits import BODY_BYTES_MIN, ConnectionLimits
from core.domain.errors import ConfigurationError, StorageUnavailable
from core.domain.ids import new_id
from tests.support.waiting import until
from tests.support.web_stage import Stage, staged

ARRIVAL_SECONDS = 0.2
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def count_body(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def think(_request: web.Request) -> web.Response:
    await asyncio.sleep(4 * ARRIVAL_SECONDS)
    return web.Response(text="thought")


@asynccontextmanager
async def served(connections_max: int = 100, arrival_seconds: float = ARRIVAL_SECONDS) -> AsyncGenerator[int, None]:
    app = web.Application()
    app[API_TOKEN] = ""
    app.add_routes([web.post("/count", count_body), web.get("/think", think), web.get("/drip", drip)])
    limits = ConnectionLimits(
        connections_max=connections_max,
        arrival_seconds=arrival_seconds,
        body_seconds=8 * ARRIVAL_SECONDS,
        answer_seconds=2 * ARRIVAL_SECONDS,
    )
    async with serve_app(app, host="127.0.0.1", port=0, limits=limits) as port:
        yield port


async def connect(port: int, sent: bytes = b"", source: str = "127.0.0.1") -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    streams[1].write(sent)
    return streams


async def status_of_think(port: int, *, source: str) -> int:
    connector = aiohttp.TCPConnector(local_addr=(source, 0))
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as http,
        http.get("/think") as answer,
    ):
        return answer.status


async def is_closed(streams: Streams) -> bool:
    """Waits for the end of the connection. Returns False if it does not come."""
    try:
        async with asyncio.timeout(30):
            return not await streams[0].read()
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    finally:
        streams[1].close()


HEAD = b"POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD[:-2], HEAD, HEAD + b"x" * 10])
async def test_a_request_that_does_not_arrive_is_given_up(sent: bytes) -> None:
    async with served() as port:
        assert await is_closed(await connect(port, sent))


async def test_a_request_that_arrives_bit_by_bit_is_given_up() -> None:
    async with served() as port:
        streams = await connect(port, HEAD)
        waiting = asyncio.ensure_future(is_closed(streams))
        while not waiting.done():
            streams[1].write(b"x")
            await asyncio.sleep(ARRIVAL_SECONDS / 10)
        assert await waiting


async def test_a_slow_upload_and_a_slow_answer_are_waited_for() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(6):
            yield b"x" * (2 * BODY_BYTES_MIN)
            await asyncio.sleep(ARRIVAL_SECONDS / 2)

    async with served() as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        async with http.post("/count", data=pieces()) as answer:
            assert await answer.text() == str(12 * BODY_BYTES_MIN)
        async with http.get("/think") as answer:
            assert await answer.text() == "thought"
        await asyncio.sleep(2 * ARRIVAL_SECONDS)
        async with http.get("/think") as answer:
            assert answer.status == 200


async def drip(request: web.Request) -> web.StreamResponse:
    """Sends much at once, then a little at a time."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(bytes(int(request.query["first"])))
    for _ in range(int(request.query["more"])):
        await response.write(b"data: more\n\n")
        await asyncio.sleep(ARRIVAL_SECONDS / 2)
    return response


@asynccontextmanager
async def reader_of_few_bytes(port: int, sent: bytes) -> AsyncGenerator[socket.socket, None]:
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(reader, ("127.0.0.1", port))
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(5 * ARRIVAL_SECONDS):
                await loop.sock_sendall(reader, sent)
        yield reader


GET = b"GET /drip?first=%d&more=0 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("sent", [GET % (8 << 20), (GET % 20_000) * 2000])
async def test_a_client_that_takes_no_answer_is_given_up(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served() as port, reader_of_few_bytes(port, sent):
        await until(lambda: "has closed a connection" in caplog.text)
    assert "an answer that was not taken" in caplog.text


async def test_one_address_leaves_room_for_others_and_all_have_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with served(connections_max=8, arrival_seconds=1.5) as port, AsyncExitStack() as stack:

        async def crowd_of(sources: Iterable[str]) -> list[asyncio.Future[bytes]]:
            """Opens silent connections. Returns what ends with each."""
            crowd = [await connect(port, source=source) for source in sources]
            for _, writer in crowd:
                stack.callback(writer.close)
            return [asyncio.ensure_future(reader.read()) for reader, _ in crowd]

        ends = await crowd_of(["127.0.0.1"] * 30)
        for refused in islice(asyncio.as_completed(ends), 26):
            assert await refused == b""
        assert sum(one.done() for one in ends) == 26
        assert await status_of_think(port, source="127.0.0.2") == 200
        await asyncio.gather(*ends)
        # all of the crowd are given up now, so their address has room again
        assert await status_of_think(port, source="127.0.0.1") == 200
        others = await crowd_of(f"127.0.0.{n}" for n in range(3, 20))
        assert await asyncio.wait_for(asyncio.gather(*others), 30) == [b""] * 17
    assert "too many connections of one address" in caplog.text


ANYWHERE = "0.0.0.0"  # noqa: S104 - it is what must be refused
PATH = f"/api/thread/{new_id()}"


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer ", "Basic right", "right", "Bearer right2", "Bearer rïght"]
)
async def test_a_missing_or_wrong_token_is_refused(tmp_path: Path, header: str | None) -> None:
    async with staged(tmp_path, api_token="right") as stage:
        headers = {} if header is None else {"Authorization": header}
        for path in (PATH, "/metrics", "/api/nowhere"):
            answer = await stage.json("GET", path, headers=headers, status=401)
            assert answer["error"] == "unauthorized"


async def test_the_right_token_is_let_in_from_anywhere(tmp_path: Path) -> None:
    async with staged(tmp_path, api_token="right") as stage:
        headers = {"Authorization": "bearer right", "Host": "agent.example"}
        answer = await stage.json("GET", PATH, headers=headers, status=404)
        assert answer["error"] == "thread_not_found"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_without_a_token_no_web_page_gets_in(stage: Stage, headers: dict[str, str]) -> None:
    answer = await stage.json("POST", "/api/thread", headers=headers, status=403)
    assert answer["error"] == "forbidden"


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"])
async def test_without_a_token_nobody_gets_in_through_a_proxy(stage: Stage, header: str) -> None:
    """A proxy on this machine asks in its own name, and may call us 127.0.0.1 as nginx does."""
    for method, path in (("POST", "/api/thread"), ("GET", "/metrics")):
        answer = await stage.json(method, path, headers={header: "192.0.2.7"}, status=403)
        assert answer["error"] == "forbidden"


@pytest.mark.parametrize("host", ["localhost:8700", "127.0.0.1", "[::1]:8700"])
async def test_without_a_token_this_machine_gets_in(stage: Stage, host: str) -> None:
    await stage.json("POST", "/api/thread", headers={"Host": host}, status=201)


@pytest.mark.parametrize("host", [ANYWHERE, "::", "192.0.2.1", "agent.example", ""])
def test_a_public_address_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_API_TOKEN"):
        check_exposure(host, "")
    check_exposure(host, "token")


class LostConversations:
    async def find(self, _: object) -> None:
        raise StorageUnavailable("gone")

    async def snapshot(self, _: object) -> None:
        raise StorageUnavailable("gone")


async def test_a_lost_database_is_told(tmp_path: Path) -> None:
    async with staged(tmp_path, conversations=LostConversations()) as stage:
        assert await stage.json("GET", "/healthz") == {"status": "ok"}
        unready = await stage.json("GET", "/readyz", status=503)
        assert unready["error"] == "not_ready"
        assert unready["message"] == "Not ready: database."
        assert unready["parts"] == {"database": "It does not answer."}
        assert (await stage.json("GET", PATH, status=503))["error"] == "storage_unavailable"
