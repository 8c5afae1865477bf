"""Resources and prompts of servers, which models use through tools of ours."""

from tests.support.mcp_servers import Guest, MakeGuest, stdio


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
