"""A member of a plan's team works like an agent with a run of its own."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bots.inbound.actions import decide_message
from core.domain.actions import IncomingMessage
from core.domain.ids import new_id
from core.run.execute import execute
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from core.web_access.guard import AddressGuard
from core.web_access.image_generation import ImageGenerator
from core.web_access.services import WebServices
from tests.fakes.sandbox_memory import MemorySandboxes
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World, load_roster
from tests.integration.core.flow.conftest import offered, planned
from tests.integration.core.test_agent_config import DRAW, Painter
from tests.support.narrow import require

LEAD = """
name: Lead
description: Plans.
prompt: You lead.
flow: planning
team: [artist]
tools: {disabled: [image_edit_or_generate]}
options: {effort: none, temperature: 0.9}
"""
ARTIST = """
name: Artist
description: Draws.
prompt: You draw.
options: {effort: high}
"""
SCHEDULE = ("schedule_task", json.dumps({"task": "Post it", "when": "PT2H", "time_zone": "Europe/Berlin"}))


@pytest.fixture
def team(world: World, tmp_path: Path) -> World:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "threadhand.yaml").write_text(LEAD)
    (folder / "artist.yaml").write_text(ARTIST)
    names = ("planning", "schedule_task", "image_edit_or_generate", "read_chat", "no_reply")
    return world.with_deps(
        toolbox=ToolSet({**world.bench.toolbox().tools, **{name: all_tools()[name] for name in names}}),
        roster=load_roster(world.database, folder),
        sandboxes=MemorySandboxes(),
        web=WebServices(image_generator=ImageGenerator(Painter(cost_usd=0.04), "painter", AddressGuard())),
    )


async def test_a_member_has_its_own_options_and_what_the_run_has(team: World) -> None:
    team.model.turns = [planned("[artist] Draw and schedule"), calls(SCHEDULE), calls(DRAW), text("did"), text("Here.")]
    run_id = await team.run("draw a field, and post it in two hours")
    options = [(one.options.effort, one.options.temperature) for one in team.model.requests]
    assert options == [("none", 0.9), *[("high", None)] * 3, ("none", 0.9)]
    assert "read_chat" not in offered(team, 1)  # this thread is not in a chat
    assert [result["success"] for result in await team.tool_results(run_id)] == [True] * 3
    (picture,) = (await team.read_reply(run_id)).attachments
    assert picture.startswith("images/")


async def overhear(world: World, words: str) -> str:
    """Bob writes to alice in the thread, which the agent follows. Returns the run that will read it."""
    talk = IncomingMessage(
        address=world.address,
        dedupe_key=new_id(),
        message_ref="2",
        person=replace(world.author, person_id="U2", name="bob"),
        text=words,
        sent_at=datetime.now(UTC),
        is_addressed=False,
    )
    receipt = await world.inbox.accept_action(talk, lambda seen: decide_message(talk, seen, follow_mode="follow"))
    return require(receipt.run_id)


async def test_talk_between_people_makes_no_plan_and_ends_none(team: World) -> None:
    team.address = replace(team.address, platform="slack")
    team.model.turns = [planned("Look"), text("looked"), text("Done.")]
    await team.run("look")
    silence = calls(("no_reply", "{}"))
    team.model.turns = [silence]
    run_id = await overhear(team, "alice, are you coming to lunch?")
    await execute(run_id, team.deps)
    assert await team.left(run_id) == []

    team.model.turns = [
        planned("A", "B"),
        calls(("wait", '{"text": "x"}')),
        text("a"),
        silence,
        text("b"),
        text("Did."),
    ]
    run_id = await overhear(team, "alice, somebody should do a and b")
    running = asyncio.ensure_future(execute(run_id, team.deps))
    await team.bench.until_started("x")
    assert await overhear(team, "alice, lunch?") == run_id
    team.bench.gate("x").set()
    await running
    assert await team.replies(run_id) == ["Did."]
