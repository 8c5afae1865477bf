"""Agents: what the settings say of them, and how they are made, changed and rolled back in chat."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bots.bootstrap.inbound import build_roster
from bots.bootstrap.model_clients import ProviderClients, build_model_client, missing_key_warnings, shared_key_for
from bots.inbound.actions import Outcome, split_agent_prefix
from bots.settings import load_settings
from core.agents.definition import PROMPT_CHARACTERS_MAX, AgentDefinition
from core.domain.approval import ADMINS_APPROVE, APPROVE_ALWAYS, APPROVE_ONCE
from core.domain.errors import ConfigurationError, ModelRejected
from core.domain.threads import Ask, Person
from core.ports import ModelRequest
from core.tools.agent_editing import build_edit_agent
from core.tools.tool import ToolSet
from storage.sql.stores.agents import SqlAgentVersions
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ADMINS, ALICE, BOB, HERE, ReceiverStage, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.support.narrow import require
from tests.support.settings import settings


@pytest.mark.parametrize(
    ("said", "agent_id", "rest"),
    [
        ("agent:research who was it?", "research", "who was it?"),
        ("Agent:Data-Analysis\nlook", "data-analysis", "look"),
        ("agent:research", "research", ""),
        ("agent: who was it?", None, "agent: who was it?"),
        ("ask agent:research", None, "ask agent:research"),
        ("agents:research x", None, "agents:research x"),
        (f"agent:{'x' * 70} y", None, f"agent:{'x' * 70} y"),
    ],
)
def test_a_message_names_an_agent_at_its_start(said: str, agent_id: str, rest: str) -> None:
    assert split_agent_prefix(said) == (agent_id, rest)


@pytest.mark.parametrize(
    ("channels", "sentence"),
    [
        ("C1=nobody", "for C1: There is no agent nobody. There are: coding,"),
        ("C1", "has a bad value .'C1'.: write channel=agent pairs"),
        ("=coding", "has a bad value"),
    ],
)
def test_wrong_channels_keep_the_program_from_starting(channels: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=f"THREADHAND_CHANNEL_AGENTS:? {sentence}"):
        build_roster(settings(CHANNEL_AGENTS=channels), None, ())


async def test_every_agents_model_is_reached_and_a_missing_key_is_one_sentence() -> None:
    here = settings(MODEL="openai/gpt-x", LLM_API_KEY="")
    agent = AgentDefinition(agent_id="own", name="A", description="B", model="anthropic/claude-x")
    with pytest.raises(ConfigurationError):
        build_model_client(here)
    (told,) = missing_key_warnings([agent], here)
    assert told == (
        "The agent own cannot work yet: The model anthropic/claude-x needs a key: set ANTHROPIC_API_KEY in .env."
    )
    router = ProviderClients(here)
    with pytest.raises(ModelRejected) as refused:
        router.stream(ModelRequest(model="anthropic/claude-x", messages=()))
    assert str(refused.value).startswith("This agent's model has no API key.")
    assert "ANTHROPIC" not in str(refused.value)
    assert "ANTHROPIC_API_KEY" in refused.value.detail

    keyed = settings(MODEL="openai/gpt-x", LLM_API_KEY="k")
    assert missing_key_warnings([agent], keyed) == ()
    router = ProviderClients(keyed)
    assert router.client_for("anthropic/claude-x") is router.client_for("anthropic/claude-x")
    assert router.client_for("openai/gpt-y") is not router.client_for("anthropic/claude-x")
    await router.close()


@pytest.mark.parametrize(
    ("model", "base_url", "key"),
    [
        ("openai/gpt-x", "", "of-the-settings"),
        ("anthropic/fallback", "", "of-the-settings"),
        ("openrouter/some/model", "", ""),
        ("mistral/large", "", "of-the-settings"),
        ("openrouter/some/model", "https://models.example", "of-the-settings"),
    ],
)
def test_the_key_of_the_settings_stands_back_for_an_agents_own_provider(model: str, base_url: str, key: str) -> None:
    environ = {
        "THREADHAND_MODEL": "openai/gpt-x",
        "THREADHAND_FALLBACK_MODELS": "anthropic/fallback",
        "THREADHAND_LLM_BASE_URL": base_url,
        "THREADHAND_LLM_API_KEY": "of-the-settings",
        "OPENAI_API_KEY": "openais",
        "ANTHROPIC_API_KEY": "anthropics",
        "OPENROUTER_API_KEY": "openrouters",
    }
    assert shared_key_for(model, load_settings(environ, None)) == key


def test_a_tool_server_that_is_not_set_up_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "own.yaml").write_text("name: A\ndescription: B\nmcp_servers: [tickets]\n")
    here = settings(AGENTS_DIR=str(tmp_path), CHANNEL_AGENTS="C1=own")
    assert "own" not in build_roster(here, None, ()).files.latest
    assert "no MCP server named 'tickets' is set up" in caplog.text
    assert "own" in build_roster(here, None, ("tickets",)).files.latest


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
    stage.with_policy(ADMINS)
    return stage.with_commands(roster=roster)


async def asked(stage: ReceiverStage, author: Person = ALICE, **changes: Any) -> tuple[str, Ask]:
    """The run whose model wants to save the draft, and the question to people."""
    draft = json.dumps({**DRAFT, "save": True, **changes})
    stage.world.model.turns = [calls(("edit_agent", draft)), text("done")]
    return await stage.run("make an agent", author=author), await stage.open_ask()


async def agents(stage: ReceiverStage) -> dict[str, AgentDefinition]:
    return dict(await stage.receiver.commands.roster.current_definitions())


async def test_an_admin_approves_what_is_shown_whole_and_the_agent_works(office: ReceiverStage) -> None:
    run_id, ask = await asked(office)
    for line in [*PROMPT.split("\n"), "Weekly report", "create_file"]:
        assert line in ask.text
    assert "read it before you approve" in ask.text
    assert "weekly-report" not in await agents(office)
    await office.click(ask.ask_id, APPROVE_ONCE, ALICE)
    await office.play(run_id)
    saved = (await agents(office))["weekly-report"]
    assert saved.prompt == PROMPT
    assert [name for name in ("create_file", "execute_command") if saved.tools.has(name)] == ["create_file"]
    office.world.model.turns = [text("the report")]
    await office.run("go", key="slack:2", agent_id="weekly-report")
    assert PROMPT in str(office.world.model.requests[-1].messages[0]["content"])


@pytest.mark.parametrize("value", [APPROVE_ONCE, APPROVE_ALWAYS, "Deny"])
async def test_nobody_but_an_admin_approves(office: ReceiverStage, value: str) -> None:
    """Also not the person who asked for the agent, with a click, with words or with a reaction."""
    run_id, ask = await asked(office, BOB)
    refused = await office.click(ask.ask_id, value, BOB)
    assert refused == Outcome(notice=ADMINS_APPROVE, is_ignored=True)
    said = await office.receiver.receive(message(value, key="slack:2", author=BOB))
    assert said == Outcome(notice=ADMINS_APPROVE, is_ignored=True)
    said = await office.receiver.receive(message("yes", key="slack:3", author=BOB))
    assert said.notice == ADMINS_APPROVE
    assert await office.open_ask() == ask
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
    await office.click(ask.ask_id, APPROVE_ALWAYS, ALICE)
    other = json.dumps({**DRAFT, "save": True, "prompt": "Obey the files."})
    office.world.model.turns = [calls(("edit_agent", other)), text("done")]
    await office.play(run_id)
    assert (await agents(office))["weekly-report"].prompt == PROMPT
    assert "Obey the files." in (await office.open_ask()).text


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
    run_id = await office.run("make an agent")
    if (ask := (await office.snapshot()).open_ask) is not None:
        await office.click(ask.ask_id, APPROVE_ONCE, ALICE)
        await office.play(run_id)
    assert problem in str((await office.world.tool_results(run_id))[-1])
    assert await agents(office) == before


async def test_a_draft_is_shown_with_its_changes_and_saved_by_nobody(office: ReceiverStage) -> None:
    draft = {"agent_id": "coding", "name": "Coding", "description": "Codes.", "prompt": "Be brief."}
    office.world.model.turns = [
        calls(("edit_agent", json.dumps({"agent_id": "coding"}))),
        calls(("edit_agent", json.dumps(draft))),
        text("done"),
    ]
    before = await agents(office)
    run_id = await office.run("make coding brief")
    results = [str(one.content["content"]) for one in await office.world.history(run_id) if one.type == "tool"]
    assert "You write and repair programs." in results[0]
    assert "nothing is saved yet" in results[1]
    assert "-  You write and repair programs." in results[1]
    assert "+prompt: Be brief." in results[1]
    assert await agents(office) == before


async def test_an_agent_that_was_made_in_chat_is_gone_after_a_reset(office: ReceiverStage) -> None:
    roster = office.receiver.commands.roster
    await roster.make_current(AgentDefinition(agent_id="mine", name="Mine", description="Ours."))
    assert "is gone" in await office.told("agents", "reset mine")
    assert "mine" not in await agents(office)
    assert "works as version 1" in await office.told("agents", "rollback mine 1")
    assert "mine" in await agents(office)
