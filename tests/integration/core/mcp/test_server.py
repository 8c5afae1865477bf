"""Our own tools for other clients, over stdio and HTTP, used by our own client."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from yarl import URL

from core.domain.call_consent import STAYS
from core.domain.errors import ConfigurationError
from core.domain.events import ActivityChanged
from core.mcp.own_server import OpenContext, serve_http
from core.mcp.settings import McpServerConfig
from core.ports import Sandbox, ShellSession
from core.tasks import cancel, spawn
from core.tools.shell import ExecuteParams, session_of_call
from core.tools.tool import Tool, ToolContext, ToolSet
from tests.fakes.mcp_own import ALL, Nothing, always
from tests.fakes.preloaded import command_of
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.paths import FAKES, REPOSITORY
from tests.support.mcp_servers import CONTEXT, Guest, MakeGuest
from tests.support.waiting import until

OWN = ToolSet(ALL)


def own_stdio() -> McpServerConfig:
    command, *arguments = command_of(str(FAKES / "mcp_own.py"))
    return McpServerConfig(name="own", transport="stdio", command=command, args=tuple(arguments), cwd=str(REPOSITORY))


@asynccontextmanager
async def served(
    tools: ToolSet = OWN, context: ToolContext = CONTEXT, open_context: OpenContext | None = None
) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = spawn(
        serve_http(tools, open_context or always(context), token="s3cret", on_ready=ready.set_result), name="own"
    )
    try:
        yield await ready
    finally:
        await cancel(serving)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with served() as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
async def own(request: pytest.FixtureRequest, guest_of: MakeGuest) -> AsyncIterator[Guest]:
    async with AsyncExitStack() as stack:
        config = own_stdio()
        if request.param == "http":
            url = await stack.enter_async_context(served())
            headers = {"Authorization": "Bearer s3cret"}
            config = McpServerConfig(name="own", transport="http", url=url, headers=headers)
        guest = await guest_of(config).ready()
        yield guest


async def test_all_tools_are_offered_but_those_that_talk_in_a_thread(own: Guest) -> None:
    assert set(own.toolbox.tools) == {"mcp_own_greet", "mcp_own_draw", "mcp_own_break", "mcp_own_send"}


async def test_a_call_comes_back(own: Guest) -> None:
    assert await own.output("mcp_own_greet", name="alice", times=2) == "Hello alice! Hello alice!"


async def test_a_picture_comes_through(own: Guest) -> None:
    outcome = await own.call("mcp_own_draw")
    (picture,) = outcome.messages
    assert base64.b64decode(str(picture.content["base64"])).startswith(b"\x89PNG")


async def test_what_a_person_must_allow_is_refused(own: Guest) -> None:
    outcome = await own.call("mcp_own_send")
    assert outcome.outcome == "failed"
    assert "send was not run: a person must allow it first" in str(outcome.result["output"])


async def test_arguments_are_checked_on_both_sides(own: Guest) -> None:
    assert "name: is missing" in await own.error("mcp_own_greet")
    tool = own.toolbox.tools["mcp_own_greet"]
    output = await tool.run(tool.params.model_construct({"name": "alice", "times": "often"}), CONTEXT)
    assert "The arguments of greet do not fit" in str(getattr(output, "output", ""))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_nobody_comes_in_over_http_without_the_token(
    guest_of: MakeGuest, address: str, headers: dict[str, str]
) -> None:
    config = McpServerConfig(name="own", transport="http", url=address, headers=headers)
    assert await guest_of(config).look() == []


async def test_a_public_address_needs_a_token() -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_API_TOKEN"):
        await serve_http(ToolSet(ALL), always(CONTEXT), host="0.0.0.0")  # noqa: S104 - refused


def over_http(url: str, **more: object) -> McpServerConfig:
    fields = {"name": "own", "transport": "http", "url": url, "headers": {"Authorization": "bEARER  s3cret"}, **more}
    return McpServerConfig.model_validate(fields)


async def who(_params: Nothing, context: ToolContext) -> str:
    return context.thread_id


def one_tool(run: Callable[[Nothing, ToolContext], Awaitable[str]], **more: Any) -> ToolSet:
    fields = {"name": "one", "effect": "acts", "reach": STAYS, "params": Nothing, "run": run, **more}
    return ToolSet({"one": Tool(title=lambda _params: "Working", **fields)})


async def test_each_session_over_http_has_a_context_of_its_own_and_closes_it(guest_of: MakeGuest) -> None:
    opened: list[str] = []
    closed: list[str] = []

    @asynccontextmanager
    async def open_context() -> AsyncIterator[ToolContext]:
        name = f"session {len(opened) + 1}"
        opened.append(name)
        yield replace(CONTEXT, thread_id=name)
        closed.append(name)

    async with served(one_tool(who), open_context=open_context) as url:
        guests = [await guest_of(over_http(url, protocol="legacy")).ready() for _ in range(2)]
        said = [await guest.output("mcp_own_one") for guest in (*guests, *guests)]
        assert said == ["session 1", "session 2", "session 1", "session 2"]
        await guests[0].servers.close()
        await until(lambda: closed == ["session 1"])
        newer = [await guest_of(over_http(url)).ready() for _ in range(2)]
        assert [await guest.output("mcp_own_one") for guest in newer] == ["session 3"] * 2
    assert sorted(closed) == opened


async def test_a_cancelled_command_is_killed(guest_of: MakeGuest) -> None:
    sandbox = await MemorySandboxes().open("thread", fence=1)
    started = asyncio.Event()
    ended: list[str] = []

    async def terminate(session: str, *, keeps_state: bool = False) -> None:
        ended.append(session)

    async def opened() -> Sandbox:
        return sandbox

    async def work(_params: Nothing, _context: ToolContext) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    sandbox.shell.terminate = terminate
    async with served(one_tool(work, subject="shell/main"), replace(CONTEXT, sandbox=opened)) as url:
        guest = await guest_of(over_http(url, protocol="legacy")).ready()
        call = spawn(guest.call("mcp_own_one"), name="call")
        await started.wait()
        await cancel(call)
        await until(lambda: ended == ["main"])


async def test_of_two_commands_only_the_cancelled_one_is_killed() -> None:
    running = [
        ShellSession(name="default", command="build", is_running=True, running_seconds=9),
        ShellSession(name="default#2", command="test", is_running=True, running_seconds=1),
        ShellSession(name="main", command="x", is_running=True, running_seconds=1),
        ShellSession(name="old", command="deploy", is_running=False, running_seconds=0),
    ]
    sandbox = await MemorySandboxes().open("thread", fence=1)
    shell = sandbox.shell

    async def sessions() -> tuple[ShellSession, ...]:
        return tuple(running)

    shell.sessions = sessions
    found = [
        await session_of_call(shell, ExecuteParams(command=command, session_name=name))
        for command, name in (("test", None), ("build", None), ("deploy", None), ("x", "main"))
    ]
    assert found == ["default#2", "default", "", "main"]


REQUEST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer s3cret\r\nContent-Length: 100000\r\n"
REFUSED = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def wait_until_closed(url: str, sent: bytes, *, trickled: bytes) -> None:
    """Sends the bytes, then one byte at a time, until the server closes the connection."""
    port = URL(url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        reading = asyncio.ensure_future(reader.read())
        for place in range(len(trickled)):
            await asyncio.wait([reading], timeout=0.05)
            if reading.done():
                break
            assert place < len(trickled) - 1, "each byte was waited for"
            writer.write(trickled[place : place + 1])
        async with asyncio.timeout(30):
            with suppress(ConnectionError):
                await reading
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("sent", "trickled"),
    [
        (b"", b""),
        (b"POST /mcp HT", b""),
        (b"POST /mcp HTTP/1.1\r\n", b"a: " + b"b" * 200),
        (REQUEST + b"\r\n", b""),
        (REQUEST + b"\r\n", b"x" * 200),
        (REFUSED + b"GET /mcp HTTP/1.1\r\n", b"a: " + b"b" * 200),
    ],
    ids=["nothing", "half a head", "a slow head", "no body", "a slow body", "a slow second head"],
)
async def test_a_request_over_http_that_does_not_arrive_is_given_up(
    address: str, monkeypatch: pytest.MonkeyPatch, sent: bytes, trickled: bytes
) -> None:
    monkeypatch.setattr("core.mcp.own_server.ARRIVAL_SECONDS", 0.2)
    await wait_until_closed(address, sent, trickled=trickled)


async def test_the_connections_over_http_are_limited(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.mcp.own_server.CONNECTIONS_MAX", 3)
    port = URL(address).port
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    reads = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
    done, _ = await asyncio.wait(reads, timeout=0.5)
    assert len(done) == 2
    await asyncio.gather(*done, return_exceptions=True)
    for _, writer in crowd:
        writer.close()
    await asyncio.gather(*reads, return_exceptions=True)


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_progress_is_reported_with_the_activity_and_the_time(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.mcp.own_server.PROGRESS_SECONDS", 0.05)
    seen: list[tuple[float, str | None]] = []
    is_enough = asyncio.Event()

    async def note(progress: float, _total: float | None, message: str | None) -> None:
        seen.append((progress, message))
        if len(seen) >= 3:
            is_enough.set()

    async def work(_params: Nothing, context: ToolContext) -> str:
        context.emit(ActivityChanged(text="Starting a sandbox"))
        await is_enough.wait()
        return "done"

    async with served(one_tool(work)) as url:
        headers = {"Authorization": "Bearer s3cret"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with asyncio.timeout(30), Client(transport, mode=protocol) as client:
                await client.call_tool("one", {}, progress_callback=note)
    assert seen[0][1] == "Starting a sandbox"
    assert [one for one, _ in seen] == sorted({one for one, _ in seen})
