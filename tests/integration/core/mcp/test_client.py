"""Several servers together: which are started, which are chosen, and what one that fails does to the others."""

import asyncio
import logging
from dataclasses import replace

import pytest

from core import failpoints
from core.mcp.settings import McpServerConfig
from core.tasks import cancel, spawn
from tests.support.mcp_servers import MakeGuest, stdio
from tests.support.waiting import until


def missing(name: str) -> McpServerConfig:
    return McpServerConfig(name=name, transport="stdio", command="/nowhere/to/be/found")


async def test_a_server_that_cannot_be_started_leaves_the_others(
    guest_of: MakeGuest, caplog: pytest.LogCaptureFixture
) -> None:
    guest = guest_of(missing("gone"), stdio())
    assert "mcp_fake_echo" in await guest.look()
    await guest.look()
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert said == [
        "the MCP server gone cannot be reached, its tools are left out: its command (or its folder) does not exist"
    ]


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


async def test_a_server_that_nobody_wants_is_not_started(guest_of: MakeGuest, caplog: pytest.LogCaptureFixture) -> None:
    guest = guest_of(missing("gone"))
    assert await guest.look(frozenset({"mcp_other_echo", "fake"})) == []
    assert caplog.records == []


async def test_a_slow_server_is_there_for_a_later_run(guest_of: MakeGuest) -> None:
    guest = guest_of(stdio(), wait_seconds=0, first_wait_seconds=0)
    assert await guest.look() == []
    await until(lambda: guest.look())


async def test_a_run_that_is_cancelled_while_it_waits_takes_no_connection_with_it(guest_of: MakeGuest) -> None:
    guest = guest_of(stdio())
    first = spawn(guest.look(), name="run")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await cancel(first)
    assert "mcp_fake_echo" in await guest.look()


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
    failpoints.arm("mcp.connect.before:raise")
    try:
        assert await guest.look() == []
    finally:
        failpoints.arm("")
    assert "mcp_fake_echo" in await guest.look()


async def test_failed_attempts_come_later_and_later(guest_of: MakeGuest) -> None:
    guest = guest_of(missing("gone"), backoff_seconds=100)
    link = guest.servers._links[0]
    waits: list[float] = []
    for _ in range(4):
        await guest.look()
        waits.append(link._next_attempt_at - asyncio.get_running_loop().time())
        link._next_attempt_at = 0
    assert [round(wait, -1) for wait in waits] == [0, 60, 60, 60]


async def test_the_status_line_names_server_and_tool(guest_of: MakeGuest) -> None:
    guest = await guest_of(stdio()).ready()
    tool = guest.toolbox.tools["mcp_fake_echo"]
    assert tool.title(tool.params.model_validate({"text": "x"})) == "Using echo of fake"
