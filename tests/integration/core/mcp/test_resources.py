"""Resources and prompts of servers, which models use through tools of ours."""

import pytest

from core.mcp import resources
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.integration.core.mcp.test_results import call
from tests.support.mcp_servers import Guest, MakeGuest, context_in, stdio


@pytest.fixture(params=["auto", "legacy"])
async def modern(request: pytest.FixtureRequest, guest_of: MakeGuest) -> Guest:
    return await guest_of(stdio(program="mcp_modern.py", protocol=request.param)).ready()


async def test_resources_are_listed_searched_and_read(modern: Guest) -> None:
    listed = await modern.output("list_resources")
    assert "notes://today (text/plain): today: What is to do today." in listed
    assert "notes://day/{day} (text/plain): day_notes: The notes of one day." in listed
    found = await modern.output("list_resources", search="PLAN")
    assert found.splitlines() == ["shop://plan (application/pdf): plan"]
    assert await modern.output("list_resources", search="nowhere") == "No resource matches."
    read = await modern.output("read_resource", uri="notes://day/Monday")
    assert read == "[resource notes://day/Monday, text/plain]\nNothing on Monday."
    assert "nowhere://" in await modern.error("read_resource", uri="nowhere://")


async def test_a_resource_that_is_no_text_is_saved(modern: Guest) -> None:
    sandboxes = MemorySandboxes()
    outcome = await call(modern, "read_resource", context_in(sandboxes), uri="shop://plan")
    assert "application/pdf, 6 bytes: saved as .results/" in str(outcome.result["output"])
    assert list(sandboxes.machines["thread"].content.values()) == [b"%PDF-1"]


async def test_a_prompt_is_offered_with_its_arguments_and_filled_in(modern: Guest) -> None:
    said = modern.toolbox.specs["mcp_fake_get_prompt"].description
    assert "review(text, tone?): Asks for a review." in said
    got = await modern.output("get_prompt", name="review", arguments={"text": "ok"})
    assert got == "[user]\nReview this in a kind tone: ok"
    missing = await modern.error("get_prompt", name="review", arguments={"tone": "dry"})
    assert missing == "The prompt needs more arguments: review(text, tone?): Asks for a review."
    assert "answered with an error" in await modern.error("get_prompt", name="none", arguments={})
    assert "name" in await modern.error("get_prompt", arguments={"text": "ok"})


async def test_reading_needs_no_approval_unless_the_settings_say_so(guest_of: MakeGuest) -> None:
    names = ("list_resources", "read_resource", "get_prompt")
    guest = await guest_of(stdio(program="mcp_modern.py")).ready()
    assert not any(guest.servers.needs_approval(f"mcp_fake_{name}") for name in names)
    guest = guest_of(stdio(program="mcp_modern.py", needs_approval=["read_*"], enabled_tools=["*_resource"]))
    assert await guest.look() == ["mcp_fake_read_resource"]
    assert guest.servers.needs_approval("mcp_fake_read_resource")


async def test_a_server_without_them_has_no_such_tools(guest: Guest) -> None:
    assert not {f"mcp_fake_{name}" for name in resources.NAMES} & set(guest.toolbox.tools)


async def test_a_tool_of_the_server_comes_before_ours_of_the_same_name(guest_of: MakeGuest) -> None:
    guest = guest_of(stdio(program="mcp_library.py", arguments=("lend", "read_resource")))
    assert "mcp_fake_list_resources" in await guest.look()
    assert await guest.output("read_resource") == "read_resource of the server"


async def test_a_large_library_stays_within_the_budget_and_silence_costs_no_tool(
    guest_of: MakeGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "OFFER_SECONDS", 2.0)
    guest = guest_of(stdio(program="mcp_library.py", call_timeout_seconds=60))
    names = await guest.look()
    assert sorted(names) == ["mcp_fake_lend", "mcp_fake_list_resources", "mcp_fake_read_resource"]
    listed = await guest.output("list_resources")
    assert len(listed) < resources.LIST_CHARACTERS_MAX + 200
    assert "\u202e" not in listed
    *lines, rest = listed.splitlines()
    assert all(line.startswith("book://") for line in lines)
    assert rest == f"[{3_000 - len(lines)} more are left out: narrow it with `search`]"
    assert "book://2999" in await guest.output("list_resources", search="book 2999")
    assert len(await guest.output("read_resource", uri="book://1")) <= 200_100
