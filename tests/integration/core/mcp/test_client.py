"""Several servers together: which are started, which are chosen, and what one that fails does to the others."""

from dataclasses import replace

import pytest

from core import failpoints
from tests.support.mcp_servers import MakeGuest, stdio


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
    failpoints.arm("mcp.connect.before:raise")
    try:
        assert await guest.look() == []
    finally:
        failpoints.arm("")
    assert "mcp_fake_echo" in await guest.look()
