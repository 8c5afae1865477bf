"""Servers that want authorization: client credentials, the consent of a person, and tokens that outlive the program."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import httpx2
import pytest
from aiohttp import web

from core.domain.errors import ConfigurationError
from core.mcp.secrets import secret_values
from core.mcp.settings import McpServerConfig, parse_servers
from tests.integration.core.mcp.test_other_servers import PlainServer
from tests.support.mcp_servers import MakeGuest
from tests.support.web import serve_http

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
    await guest_of(config, authorize=server.person).look()
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
