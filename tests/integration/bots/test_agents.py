"""What the settings say of agents, and the word `use`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bots.bootstrap.inbound import build_roster
from bots.bootstrap.model_clients import ProviderClients, build_model_client, missing_key_warnings, shared_key_for
from bots.inbound.actions import CommandCalled, Outcome, split_agent_prefix
from bots.inbound.commands.conversation import CommandDeps
from bots.inbound.commands.table import answer_command
from bots.settings import load_settings
from core.agents.definition import AgentDefinition
from core.domain.errors import ConfigurationError, ModelRejected
from core.domain.threads import Address, Person
from core.ports import ModelRequest
from storage.sql.stores.agents import SqlAgentVersions
from tests.integration.bots.receiver_stage import HERE, command_deps
from tests.integration.core.conftest import World
from tests.integration.core.conftest import world as world
from tests.support.settings import settings

ALICE = Person(person_id="U1", name="alice")


def deps_of(world: World, **variables: str) -> CommandDeps:
    roster = build_roster(settings(**variables), SqlAgentVersions(world.database), ())
    return replace(command_deps(world), roster=roster)


async def use(deps: CommandDeps, name: str = "", address: Address = HERE) -> Outcome:
    called = CommandCalled(address=address, dedupe_key="k", name="use", argument=name, person=ALICE)
    return await answer_command(called, deps)


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
        build_roster(settings(CHANNEL_AGENTS=channels), no_versions(), ())


def no_versions() -> Any:
    return None


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
    assert "own" not in build_roster(here, no_versions(), ()).files.latest
    assert "no MCP server named 'tickets' is set up" in caplog.text
    assert "own" in build_roster(here, no_versions(), ("tickets",)).files.latest
