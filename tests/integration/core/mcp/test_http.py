"""Servers over HTTP: headers, restarts, dropped streams, hostile answers, and authorization."""

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import httpx2
import pytest
from aiohttp import web
from aiohttp import web as aiohttp_web

from core.domain.errors import ConfigurationError
from core.mcp.secrets import REDACTED, secret_values
from core.mcp.settings import McpServerConfig, parse_servers
from core.tasks import spawn
from tests.integration.core.mcp.test_other_servers import PlainServer
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


SECRET = "a-client-secret"


@dataclass
class AuthorizingServer:
    """An MCP server with its own authorization server, which checks what it is sent and issues short-lived tokens."""

    url: str = ""
    expires_in: int = 3_600
    issue_seconds: float = 0
    refuses: bool = False
    consent_place: str = ""
    """Where people are sent to in place of its own page."""
    plain: PlainServer = field(default_factory=PlainServer)
    asked: list[str] = field(default_factory=list[str])
    challenges: dict[str, str] = field(default_factory=dict[str, str])
    token: str = ""
    scope: str = ""

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    async def mcp(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("authorization") == f"Bearer {self.token}" and self.token:
            return await self.plain.answer(request)
        place = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        challenge = f'Bearer resource_metadata="{place}"'
        return web.Response(status=401, headers={"www-authenticate": challenge})

    async def resource(self, _request: web.Request) -> web.Response:
        return web.json_response({"resource": self.url, "authorization_servers": [self.origin]})

    async def metadata(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.origin,
                "authorization_endpoint": self.consent_place or f"{self.origin}/consent",
                "token_endpoint": f"{self.origin}/issue",
                "registration_endpoint": f"{self.origin}/enrol",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def register(self, request: web.Request) -> web.Response:
        self.asked.append("register")
        known = json.loads(await request.text())
        return web.json_response({**known, "client_id": "registered"}, status=201)

    async def consent(self, request: web.Request) -> web.Response:
        self.asked.append("consent")
        assert request.query["client_id"] == "registered"
        assert request.query["code_challenge_method"] == "S256"
        self.scope = request.query.get("scope", "")
        self.challenges["code"] = request.query["code_challenge"]
        answer = {"error": "access_denied"} if self.refuses else {"code": "code"}
        query = urlencode({**answer, "state": request.query["state"]})
        raise web.HTTPFound(f"{request.query['redirect_uri']}?{query}")

    async def issue(self, request: web.Request) -> web.Response:
        sent = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.asked.append(sent["grant_type"])
        await asyncio.sleep(self.issue_seconds)
        match sent["grant_type"]:
            case "authorization_code":
                digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                is_right = challenge == self.challenges.pop(sent["code"], None)
            case "client_credentials":
                basic = base64.b64encode(f"service:{SECRET}".encode()).decode()
                is_right = request.headers.get("authorization") == f"Basic {basic}"
            case _:
                is_right = sent.get("refresh_token") == f"refresh of {self.token}"
        if not is_right:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.token = f"token {len(self.asked)}"
        issued = {
            "access_token": self.token,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "refresh_token": f"refresh of {self.token}",
        }
        return web.json_response(issued)

    async def person(self, link: str) -> str:
        """Opens the link and agrees."""
        async with httpx2.AsyncClient() as browser:
            return (await browser.get(link)).headers["location"]

    def config(self, **oauth: object) -> McpServerConfig:
        return McpServerConfig.model_validate({"name": "fake", "transport": "http", "url": self.url, "oauth": oauth})


@asynccontextmanager
async def authorizing_server() -> AsyncIterator[AuthorizingServer]:
    server = AuthorizingServer()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.mcp)
    app.router.add_get("/.well-known/oauth-protected-resource/mcp", server.resource)
    app.router.add_get("/.well-known/oauth-authorization-server", server.metadata)
    app.router.add_post("/enrol", server.register)
    app.router.add_get("/consent", server.consent)
    app.router.add_post("/issue", server.issue)
    async with serve_http(app) as url:
        server.url = f"{url}/mcp"
        yield server


@pytest.fixture
async def server() -> AsyncIterator[AuthorizingServer]:
    async with authorizing_server() as made:
        yield made


async def test_a_consent_is_kept_and_later_runs_need_nobody(
    server: AuthorizingServer, guest_of: MakeGuest, tmp_path: Path
) -> None:
    config = server.config(token_folder=tmp_path / "tokens", scope="read write")
    guest = guest_of(config, authorize=server.person)
    assert await guest.look() == ["mcp_fake_echo"]
    assert set(server.scope.split()) == {"read", "write"}
    assert server.asked == ["register", "consent", "authorization_code"]
    place = tmp_path / "tokens" / "fake.json"
    assert (place.stat().st_mode & 0o777, [*place.parent.iterdir()]) == (0o600, [place])

    later = guest_of(config)
    assert await later.look() == ["mcp_fake_echo"]
    assert await later.output("echo") == "here"
    assert server.asked == ["register", "consent", "authorization_code"]


@pytest.fixture
async def expired(server: AuthorizingServer, guest_of: MakeGuest, tmp_path: Path) -> McpServerConfig:
    """The settings of the server, whose stored token has expired. The next one is valid for an hour."""
    config = server.config(token_folder=tmp_path)
    server.expires_in = -1
    guest = guest_of(config, authorize=server.person)
    await guest.look()
    await guest.servers.close()  # it would ask for consent again, because its token has expired
    server.asked.clear()
    server.expires_in = 3_600
    return config


async def test_two_processes_use_a_refresh_token_once(
    server: AuthorizingServer, guest_of: MakeGuest, expired: McpServerConfig, tmp_path: Path
) -> None:
    server.issue_seconds = 0.2
    guests = [guest_of(expired) for _ in range(3)]
    assert await asyncio.gather(*(one.look() for one in guests)) == [["mcp_fake_echo"]] * 3
    assert server.asked == ["refresh_token"]

    place = tmp_path / "fake.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "expires_at": 1}))
    for one in guests:  # which are connected
        assert await one.output("echo") == "here"
    assert server.asked == ["refresh_token"] * 2


async def test_without_a_consent_the_server_is_missing_and_the_command_is_named(
    server: AuthorizingServer, guest_of: MakeGuest, tmp_path: Path
) -> None:
    guest = guest_of(server.config(token_folder=tmp_path))
    assert await guest.look() == []
    assert guest.servers.missing_servers() == {
        "fake": "it needs the consent of a person: an admin writes `mcp connect fake` to the bot, or runs "
        "`threadhand mcp-login fake`"
    }


async def test_a_server_is_tried_at_once_when_a_person_has_agreed(
    server: AuthorizingServer, guest_of: MakeGuest, tmp_path: Path
) -> None:
    config = server.config(token_folder=tmp_path)
    waiting = guest_of(config, backoff_seconds=1000)
    for _ in range(3):
        assert await waiting.look() == []
    assert "is tried again in" in waiting.servers.missing_servers()["fake"]
    await guest_of(config, authorize=server.person).look()
    assert await waiting.look() == []
    waiting.servers.reconnect("fake")
    assert await waiting.look() == ["mcp_fake_echo"]
    waiting.servers.reconnect("fake")  # also while it is connected
    assert await waiting.look() == ["mcp_fake_echo"]
    assert await waiting.output("echo") == "here"


async def test_client_credentials_need_nobody_and_go_to_their_issuer_only(
    server: AuthorizingServer, guest_of: MakeGuest
) -> None:
    fields: dict[str, object] = {"grant": "client_credentials", "client_id": "service", "client_secret": SECRET}
    guest = guest_of(server.config(**fields, issuer=server.origin))
    assert await guest.look() == ["mcp_fake_echo"]
    assert server.asked == ["client_credentials"]
    await guest.servers.close()  # it would ask again once its token is refused
    server.token = ""
    stranger = guest_of(server.config(**fields, issuer="https://issuer.example"))
    assert await stranger.look() == []
    assert server.asked == ["client_credentials"]
    assert SECRET not in stranger.servers.missing_servers()["fake"]


def test_secrets_of_authorization_are_kept_out_of_texts() -> None:
    text = """
servers:
  tickets:
    url: https://tickets.example/mcp
    oauth: {grant: client_credentials, client_id: bot, client_secret: "${KEY}", issuer: "https://tickets.example"}
"""
    (config,) = parse_servers(text, {"KEY": SECRET})
    assert SECRET in secret_values(config)
    assert SECRET not in repr(config)


@pytest.mark.parametrize(
    ("oauth", "why"),
    [
        ("{grant: client_credentials, client_id: a}", "needs client_id, client_secret"),
        ("{redirect_uri: 'https://elsewhere.example/'}", "redirect_uri must be on this machine"),
        ("{client_idd: a}", "client_idd"),
    ],
)
def test_a_mistake_is_told(oauth: str, why: str) -> None:
    text = f"servers: {{one: {{url: 'https://a.example', oauth: {oauth}}}}}"
    with pytest.raises(ConfigurationError, match=why):
        parse_servers(text, {})
