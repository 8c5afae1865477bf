"""Our own tools for other clients, over stdio and HTTP, used by our own client."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from core.domain.errors import ConfigurationError
from core.mcp.server import serve_http
from core.mcp.settings import McpServerConfig
from core.tasks import cancel, spawn
from core.tools.tool import ToolSet
from tests.fakes.mcp_own import ALL
from tests.integration.core.mcp.conftest import CONTEXT, Guest, MakeGuest
from tests.paths import REPOSITORY


def own_stdio() -> McpServerConfig:
    return McpServerConfig(
        name="own",
        transport="stdio",
        command=sys.executable,
        args=("-m", "tests.fakes.mcp_own"),
        cwd=str(REPOSITORY),
    )


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = spawn(
        serve_http(ToolSet(ALL), lambda: CONTEXT, token="s3cret", on_ready=ready.set_result),
        name="own",
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
        guest = guest_of(config)
        await guest.look()
        yield guest


async def test_all_tools_are_offered_but_those_that_talk_in_a_thread(own: Guest) -> None:
    assert set(own.toolbox.tools) == {
        "mcp_own_greet",
        "mcp_own_draw",
        "mcp_own_break",
        "mcp_own_send",
    }


async def test_the_schema_comes_through_whole(own: Guest) -> None:
    theirs, ours = own.toolbox.specs["mcp_own_greet"], ALL["greet"].spec()
    assert theirs.parameters == ours.parameters
    assert theirs.description.endswith(ours.description)


async def test_a_call_comes_back(own: Guest) -> None:
    assert await own.output("mcp_own_greet", name="alice", times=2) == "Hello alice! Hello alice!"


async def test_a_picture_comes_through(own: Guest) -> None:
    outcome = await own.call("mcp_own_draw")
    (picture,) = outcome.messages
    assert base64.b64decode(str(picture.content["base64"])).startswith(b"\x89PNG")


async def test_a_failing_tool_is_a_failed_result_without_a_trace(own: Guest) -> None:
    outcome = await own.call("mcp_own_break")
    assert outcome.outcome == "failed"
    assert outcome.result["output"] == "break broke (RuntimeError). Try another way."


async def test_what_a_person_must_allow_is_refused(own: Guest) -> None:
    outcome = await own.call("mcp_own_send")
    assert outcome.outcome == "failed"
    assert "send was not run: a person must allow it first" in str(outcome.result["output"])


async def test_arguments_are_checked_on_both_sides(own: Guest) -> None:
    assert "name: is missing" in await own.error("mcp_own_greet")
    tool = own.toolbox.tools["mcp_own_greet"]
    output = await tool.run(tool.params.model_construct({"name": 3}), CONTEXT)
    assert "The arguments of greet do not fit" in str(getattr(output, "output", ""))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_nobody_comes_in_over_http_without_the_token(
    guest_of: MakeGuest, address: str, headers: dict[str, str]
) -> None:
    config = McpServerConfig(name="own", transport="http", url=address, headers=headers)
    assert await guest_of(config).look() == []


async def test_a_public_address_needs_a_token() -> None:
    with pytest.raises(ConfigurationError, match="THREADHAND_API_TOKEN"):
        await serve_http(ToolSet(ALL), lambda: CONTEXT, host="0.0.0.0")  # noqa: S104 - refused
