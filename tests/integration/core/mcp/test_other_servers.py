"""Servers as other people build them: older protocols, slow starts, redeployments and refusals."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from core.mcp.settings import McpServerConfig
from tests.support.failpoints import armed
from tests.support.mcp_servers import MakeGuest, stdio
from tests.support.web import serve_http


def old(tmp_path: Path, trick: str, **more: object) -> McpServerConfig:
    arguments = (trick, str(tmp_path / "log"))
    return stdio(program="mcp_old.py", arguments=arguments, is_forked=False, **more)


async def test_a_server_that_exits_on_an_unknown_first_message_is_asked_in_the_older_way(
    tmp_path: Path, guest_of: MakeGuest
) -> None:
    guest = guest_of(old(tmp_path, "exits"))
    assert await guest.look() == ["mcp_fake_echo"]
    assert await guest.output("echo") == "from long ago"
    assert (tmp_path / "log").read_text().split() == ["server/discover", "initialize"]


async def test_a_server_that_is_still_not_there_is_named_and_waited_for_only_once(
    tmp_path: Path, guest_of: MakeGuest
) -> None:
    config = old(tmp_path, "slow", protocol="legacy")
    guest = guest_of(config, wait_seconds=0.01, first_wait_seconds=0.02)
    assert await guest.look() == []
    assert guest.servers.missing_servers() == {"fake": "it is still starting"}
    assert guest.servers.missing_servers(frozenset({"other"})) == {}
    assert await guest.look() == []


async def test_the_reason_of_a_failed_start_names_the_exit_code_and_the_last_words(
    tmp_path: Path, guest_of: MakeGuest
) -> None:
    guest = guest_of(old(tmp_path, "breaks", env={"API_TOKEN": "sk-secret-12345678"}), backoff_seconds=30)
    assert await guest.look() == []
    why = guest.servers.missing_servers()["fake"]
    assert why == ('its process ended with exit code 3; its last line on stderr: "no API key for [secret]"')


async def test_an_unknown_version_is_named(tmp_path: Path, guest_of: MakeGuest) -> None:
    guest = guest_of(old(tmp_path, "new", protocol="legacy"))
    assert await guest.look() == []
    assert guest.servers.missing_servers()["fake"].startswith("it speaks MCP 2999-01-01; this program")


@dataclass
class PlainServer:
    """An HTTP server with sessions that forgets them when it is redeployed. `refusal` answers every request."""

    url: str = ""
    refusal: Callable[[], web.Response] | None = None
    session: int = 1
    is_busy: bool = False
    own_error: str = ""
    calls: list[str] = field(default_factory=list[str])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        if self.refusal is not None:
            return self.refusal()
        asked = json.loads(await request.text())
        match asked["method"]:
            case "server/discover":
                return self.error(asked, -32601, "no such method", 400)
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
                return self.result(asked, result)
            case _ if request.headers.get("mcp-session-id") != str(self.session):
                return self.error(asked, -32000, "Bad Request: No valid session ID provided", 400)
            case "tools/list":
                tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
                return self.result(asked, {"tools": tools})
            case "tools/call":
                return self.call(asked)
            case _:
                return web.Response(status=202)

    def call(self, asked: dict[str, Any]) -> web.Response:
        if self.is_busy:
            return web.Response(status=429, headers={"retry-after": "30"})
        self.calls.append(asked["method"])
        if self.own_error:
            return self.error(asked, -32000, self.own_error, 200)
        if asked["params"].get("arguments"):
            return self.error(asked, -32602, "text: too long", 400)
        return self.result(asked, {"content": [{"type": "text", "text": "here"}]})

    def result(self, asked: dict[str, Any], result: object) -> web.Response:
        body = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        return web.json_response(body, headers={"mcp-session-id": str(self.session)})

    def error(self, asked: dict[str, Any], code: int, said: str, status: int) -> web.Response:
        error = {"code": code, "message": said}
        body = {"jsonrpc": "2.0", "id": asked.get("id"), "error": error}
        return web.json_response(body, status=status)

    def config(self) -> McpServerConfig:
        return McpServerConfig(name="fake", transport="http", url=self.url)


@asynccontextmanager
async def plain_server() -> AsyncIterator[PlainServer]:
    server = PlainServer()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    async with serve_http(app) as url:
        server.url = f"{url}/mcp"
        yield server


@pytest.fixture
async def plain() -> AsyncIterator[PlainServer]:
    async with plain_server() as server:
        yield server


async def test_a_redeployed_server_that_forgot_the_session_is_connected_anew(
    plain: PlainServer, guest_of: MakeGuest
) -> None:
    guest = await guest_of(plain.config()).ready()
    assert await guest.output("echo") == "here"
    plain.session += 1
    assert await guest.output("echo") == "here"
    assert len(plain.calls) == 2


async def test_an_error_with_the_code_of_a_closed_connection_is_its_own(
    plain: PlainServer, guest_of: MakeGuest
) -> None:
    guest = await guest_of(plain.config()).ready()
    plain.own_error = "out of paper"
    assert "fake answered with an error: out of paper" in await guest.error("echo")
    assert len(plain.calls) == 1


async def test_a_refusal_says_when_to_try_again(plain: PlainServer, guest_of: MakeGuest) -> None:
    guest = await guest_of(plain.config()).ready()
    plain.is_busy = True
    said = await guest.error("echo")
    assert "answered with an error: it answered with the status 429 and asks to wait 30 s" in said


@pytest.mark.parametrize(
    ("enabled", "names"),
    [
        (frozenset({"one"}), {"mcp_one_echo", "mcp_one_sums"}),
        (frozenset({"mcp_two_echo"}), {"mcp_two_echo"}),
        (frozenset({"mcp_*_sums"}), {"mcp_one_sums", "mcp_two_sums"}),
        (frozenset({"*"}), {"mcp_one_echo", "mcp_one_sums", "mcp_two_echo", "mcp_two_sums"}),
        (frozenset({"web_search"}), set()),
        (frozenset(), set()),
    ],
)
async def test_an_agent_takes_the_servers_and_tools_it_names(
    guest_of: MakeGuest, enabled: frozenset[str], names: set[str]
) -> None:
    two = [stdio(name, enabled_tools=("echo", "sum*")) for name in ("one", "two")]
    assert set(await guest_of(*two).look(enabled)) == names


async def test_tools_that_write_need_a_word(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio("by-name", needs_approval=("ec*",)), stdio("writes"), stdio(needs_approval=())).ready()
    wanted = guest.servers.needs_approval
    assert wanted("mcp_by-name_echo")
    assert not wanted("mcp_by-name_sums")
    assert wanted("mcp_writes_echo")
    assert not wanted("mcp_writes_sums")
    assert not wanted("mcp_fake_echo")
    assert not wanted("execute_command")
    assert wanted("mcp_writes_that_was_listed_once")
    link = guest.servers._links[1]
    link.offers = tuple(replace(offer, needs_approval=False) for offer in link.offers)
    assert wanted("mcp_writes_echo")


async def test_the_words_of_a_server_count_as_the_operators_only_if_it_is_trusted(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio("known", trusted=True), stdio("other")).ready()
    tools = guest.toolbox.tools
    assert {tool.described_by for name, tool in tools.items() if name.startswith("mcp_known_")} == {None}
    assert {tool.described_by for name, tool in tools.items() if name.startswith("mcp_other_")} == {("server", "other")}


async def test_a_fault_of_ours_while_connecting_costs_no_run(guest_of: MakeGuest) -> None:
    guest = guest_of(stdio())
    with armed("mcp.connect.before:raise"):
        assert await guest.look() == []
    assert "mcp_fake_echo" in await guest.look()
