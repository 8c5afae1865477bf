"""Agents that are made, changed and rolled back in chat: an admin decides, and everything is checked before."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bots.bootstrap.inbound import build_roster
from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CommandCalled, Outcome
from bots.inbound.commands.table import answer_command
from bots.settings import load_settings
from core.agents.definition import PROMPT_CHARACTERS_MAX, AgentDefinition
from core.domain.actions import AskAnswered
from core.domain.approval import ADMINS_APPROVE, APPROVE_ALWAYS, APPROVE_ONCE
from core.domain.threads import Ask, Person
from core.tools.agent_editing import build_edit_agent
from core.tools.tool import ToolSet
from storage.sql.stores.agents import SqlAgentVersions
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, ReceiverStage, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require


async def say(stage: ReceiverStage, argument: str, by: Person = ALICE) -> Outcome:
    called = CommandCalled(address=HERE, dedupe_key=argument, name="agents", argument=argument, person=by)
    return await answer_command(called, stage.receiver.commands)


PROMPT = "Each Monday you write the report.\nUse three headings:\n- done\n- next\n- risks"
DRAFT = {
    "agent_id": "weekly-report",
    "name": "Weekly report",
    "description": "Writes our weekly report.",
    "prompt": PROMPT,
    "tools": ["create_file", "complete"],
}


@pytest.fixture
def office(stage: ReceiverStage) -> ReceiverStage:
    """Everyone may write, and alice is the admin."""
    settings = load_settings({}, Path("no such file"))
    roster = build_roster(settings, SqlAgentVersions(stage.world.database), ())
    box = {**stage.world.bench.toolbox().tools, "edit_agent": build_edit_agent(roster)}
    stage.world.with_deps(roster=roster, toolbox=ToolSet(box))
    policy = AccessPolicy(workspaces=("*",), admins=(ALICE.person_id,))
    commands = replace(
        stage.receiver.commands, roster=roster, admin=replace(stage.receiver.commands.admin, policy=policy)
    )
    stage.receiver = replace(stage.receiver, policy=policy, commands=commands)
    return stage


async def ask_of(stage: ReceiverStage) -> Ask | None:
    snapshot = require(await stage.world.deps.stores.conversations.find(HERE))
    return snapshot.open_ask


async def asked(stage: ReceiverStage, author: Person = ALICE, **changes: Any) -> tuple[str, Ask]:
    """The run whose model wants to save the draft, and the question to people."""
    draft = json.dumps({**DRAFT, "save": True, **changes})
    stage.world.model.turns = [calls(("edit_agent", draft)), text("done")]
    heard = await stage.receiver.receive(message("make an agent", author=author))
    run_id = await stage.play(heard.run_id)
    ask = require(await ask_of(stage))
    return run_id, ask


def click(ask: Ask, person: Person, value: str = APPROVE_ONCE) -> AskAnswered:
    return AskAnswered(
        address=HERE,
        dedupe_key=f"click {person.name} {value}",
        ask_id=ask.ask_id,
        text=value,
        person=person,
        sent_at=datetime.now(UTC),
    )


async def agents(stage: ReceiverStage) -> dict[str, AgentDefinition]:
    return dict(await stage.receiver.commands.roster.current_definitions())


async def told(stage: ReceiverStage, run_id: str) -> str:
    """What the model was told of its newest call."""
    tools = [one for one in await stage.world.history(run_id) if one.type == "tool"]
    return str(tools[-1].content["content"])


async def test_an_admin_approves_what_is_shown_whole_and_the_agent_works(office: ReceiverStage) -> None:
    run_id, ask = await asked(office)
    for line in [*PROMPT.split("\n"), "Weekly report", "create_file"]:
        assert line in ask.text
    assert "read it before you approve" in ask.text
    assert "weekly-report" not in await agents(office)
    await office.receiver.receive(click(ask, ALICE))
    await office.play(run_id)
    saved = (await agents(office))["weekly-report"]
    assert saved.prompt == PROMPT
    assert [name for name in ("create_file", "execute_command") if saved.tools.has(name)] == ["create_file"]
    office.world.model.turns = [text("the report")]
    heard = await office.receiver.receive(message("go", key="slack:2", agent_id="weekly-report"))
    await office.play(heard.run_id)
    assert PROMPT in str(office.world.model.requests[-1].messages[0]["content"])


@pytest.mark.parametrize("value", [APPROVE_ONCE, APPROVE_ALWAYS, "Deny"])
async def test_nobody_but_an_admin_approves(office: ReceiverStage, value: str) -> None:
    """Also not the person who asked for the agent, with a click, with words or with a reaction."""
    run_id, ask = await asked(office, BOB)
    refused = await office.receiver.receive(click(ask, BOB, value))
    assert refused == Outcome(notice=ADMINS_APPROVE, is_ignored=True)
    said = await office.receiver.receive(message(value, key="slack:2", author=BOB))
    assert said == Outcome(notice=ADMINS_APPROVE, is_ignored=True)
    said = await office.receiver.receive(message("yes", key="slack:3", author=BOB))
    assert said.notice == ADMINS_APPROVE
    assert await ask_of(office) == ask
    assert require(await office.world.deps.stores.conversations.run(run_id)).status == "waiting"
    assert "weekly-report" not in await agents(office)


async def test_a_yes_above_the_conversation_that_asks_approves_nothing_and_begins_nothing(
    office: ReceiverStage,
) -> None:
    below, above = replace(HERE, channel_id="D1"), replace(HERE, channel_id="D1", thread_key="9.0")
    office.world.model.turns = [calls(("edit_agent", json.dumps({**DRAFT, "save": True})))]
    heard = await office.receiver.receive(replace(message("make an agent", author=BOB), address=below))
    await office.play(heard.run_id)
    yes = replace(message("yes", key="9.0", author=BOB), address=above)
    for notice in (ADMINS_APPROVE, ""):  # the event may come again
        assert await office.receiver.receive(yes) == Outcome(notice=notice, is_ignored=True)
    conversations = office.world.deps.stores.conversations
    assert require(await conversations.find(below)).open_ask is not None
    assert not await conversations.has_thread(above)


async def test_always_allows_no_other_draft(office: ReceiverStage) -> None:
    run_id, ask = await asked(office)
    await office.receiver.receive(click(ask, ALICE, APPROVE_ALWAYS))
    other = json.dumps({**DRAFT, "save": True, "prompt": "Obey the files."})
    office.world.model.turns = [calls(("edit_agent", other)), text("done")]
    await office.play(run_id)
    assert (await agents(office))["weekly-report"].prompt == PROMPT
    assert "Obey the files." in require(await ask_of(office)).text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"agent_id": "../etc"}, "its name: an agent's name has at most 40 small letters"),
        ({"description": "x\u202ey"}, "name, description: each must be one line"),
        ({"model": "openai/gpt-5"}, "OPENAI_API_KEY"),
        ({"tools": ["root_shell"]}, "tools.enabled: there is no tool named 'root_shell'"),
        ({"prompt": "x" * (PROMPT_CHARACTERS_MAX + 1)}, "prompt: String should have at most"),
        ({"tools": ["root_shell"], "save": True}, "there is no tool named 'root_shell'"),
    ],
)
async def test_what_a_model_hands_over_is_checked(
    office: ReceiverStage, changes: dict[str, object], problem: str
) -> None:
    draft = {**DRAFT, **changes}
    office.world.model.turns = [calls(("edit_agent", json.dumps(draft))), text("done")]
    before = await agents(office)
    heard = await office.receiver.receive(message("make an agent"))
    run_id = await office.play(heard.run_id)
    if (ask := await ask_of(office)) is not None:
        await office.receiver.receive(click(ask, ALICE))
        await office.play(run_id)
    assert problem in str(json.loads(await told(office, run_id))["tool_execution"]["result"])
    assert await agents(office) == before


async def test_a_draft_is_shown_with_its_changes_and_saved_by_nobody(office: ReceiverStage) -> None:
    draft = {"agent_id": "coding", "name": "Coding", "description": "Codes.", "prompt": "Be brief."}
    office.world.model.turns = [
        calls(("edit_agent", json.dumps({"agent_id": "coding"}))),
        calls(("edit_agent", json.dumps(draft))),
        text("done"),
    ]
    before = await agents(office)
    heard = await office.receiver.receive(message("make coding brief"))
    run_id = await office.play(heard.run_id)
    results = [str(one.content["content"]) for one in await office.world.history(run_id) if one.type == "tool"]
    assert "You write and repair programs." in results[0]
    assert "nothing is saved yet" in results[1]
    assert "-  You write and repair programs." in results[1]
    assert "+prompt: Be brief." in results[1]
    assert await agents(office) == before


async def test_an_agent_that_was_made_in_chat_is_gone_after_a_reset(office: ReceiverStage) -> None:
    roster = office.receiver.commands.roster
    await roster.make_current(AgentDefinition(agent_id="mine", name="Mine", description="Ours."))
    assert "is gone" in (await say(office, "reset mine")).notice
    assert "mine" not in await agents(office)
    assert "works as version 1" in (await say(office, "rollback mine 1")).notice
    assert "mine" in await agents(office)
