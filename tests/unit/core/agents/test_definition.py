"""Reading an agent from YAML: everything that is wrong is one sentence with the file and the key."""

import pytest

from core.agents.definition import AgentDefinition, ReferableNames, parse_definition
from core.domain.errors import ConfigurationError

KNOWN = ReferableNames(tools=frozenset({"ask", "complete"}), servers=frozenset({"tickets"}))
WHOLE = """
name: Research
description: Finds things out.
prompt: |
  Name your sources.
model: openrouter/deepseek/deepseek-chat:free
dialect: xml
tools: {enabled: [ask, complete], disabled: [complete]}
mcp_servers: [tickets]
knowledge: [handbook.pdf, notes/]
flow: planning
team: [coding]
"""
LEAST = "name: A\ndescription: B\n"


def read(text: str, agent_id: str = "research") -> AgentDefinition:
    return parse_definition(text, file=f"{agent_id}.yaml", agent_id=agent_id, known=KNOWN)


def refused(text: str, agent_id: str = "research") -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(text, agent_id)
    return str(caught.value)


def test_every_key_is_read() -> None:
    agent = read(WHOLE)
    assert (agent.agent_id, agent.name, agent.model) == (
        "research",
        "Research",
        "openrouter/deepseek/deepseek-chat:free",
    )
    assert (agent.dialect, agent.flow, agent.team) == ("xml", "planning", ("coding",))
    assert [name for name in ("ask", "complete", "other") if agent.tools.has(name)] == ["ask"]
    assert agent.mcp_servers == ("tickets",)
    assert agent.knowledge == ("handbook.pdf", "notes")
    assert agent.prompt == "Name your sources.\n"


def test_what_is_left_out_is_as_the_settings_have_it() -> None:
    agent = read(LEAST)
    assert (agent.prompt, agent.model, agent.dialect, agent.mcp_servers) == ("", "", None, None)
    assert agent.tools.has("whatever comes")
    assert (agent.knowledge, agent.flow, agent.team) == ((), "none", ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: A\n", "description: it is missing."),
        (LEAST + "tols: {}\n", "tols: there is no such key; the keys are name, description, "),
        (LEAST + "tools: {only: [ask]}\n", "tools.only: there is no such key; the keys are enabled, "),
        (LEAST + "tools: {enabled: [fly]}\n", "tools.enabled: there is no tool named 'fly'."),
        (LEAST + "tools: {disabled: [fly]}\n", "tools.disabled: there is no tool named 'fly'."),
        (LEAST + "mcp_servers: [x]\n", "mcp_servers: no MCP server named 'x' is set up."),
        (LEAST + "model: open ai\n", "model: a model is written as provider/name"),
        (LEAST + "dialect: latin\n", "dialect: it must be 'auto', 'native', 'xml' or 'react'."),
        (LEAST + "flow: wild\n", "flow: it must be 'planning' or 'none'."),
        (LEAST + "team: [coding]\n", "team: it belongs to flow: planning."),
        (LEAST + "flow: planning\nteam: [research]\n", "team: an agent is no member"),
        (LEAST + "flow: planning\nteam: [A b]\n", "team.0: an agent's name has"),
        (LEAST + "knowledge: [../secret]\n", "knowledge.0: name files and folders relative"),
        (LEAST + "knowledge: [/etc/passwd]\n", "knowledge.0: name files and folders relative"),
        (LEAST + f"prompt: {'x' * 20_001}\n", "prompt: it may have at most 20000 characters."),
        (LEAST + "prompt: 7\n", "prompt: it must be a text."),
        (LEAST + "agent_id: other\n", "agent_id: the agent goes by the file's name"),
        ("name: A\ndescription: " + "x" * 201, "description: it may have at most 200 characters."),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(text: str, sentence: str) -> None:
    said = refused(text)
    assert said.startswith(f"The agent file research.yaml: {sentence}")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: [", "is not YAML (line 1): correct it."),
        ("- a\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("name: !!python/object/apply:os.system [ls]", "is not YAML"),
        ("name: 2026-99-99\ndescription: B\n", "has a value that YAML cannot read"),
        ("x" * 100_001, "has more than 100000 bytes."),
        ("[" * 5_000, "is not YAML"),
    ],
)
def test_what_is_no_definition_is_said_in_a_sentence(text: str, sentence: str) -> None:
    said = refused(text)
    assert said.startswith(f"The agent file research.yaml {sentence}")
    assert len(said) < 200


@pytest.mark.parametrize("agent_id", ["Research", "a b", "-x", "", "x" * 41, "../x"])
def test_the_name_of_the_file_is_the_agents(agent_id: str) -> None:
    assert "its name: an agent's name has at most 40 small letters" in refused(LEAST, agent_id)


def test_several_mistakes_are_said_one_by_one() -> None:
    assert len(refused("tols: 1\n").splitlines()) == 3


def test_the_hash_is_of_the_content_alone() -> None:
    spelled = 'description: "B"\n# a remark\nname: A\ntools: {}\nflow: none\n'
    assert read(LEAST).content_hash == read(spelled).content_hash
    assert read(LEAST).content_hash != read(LEAST + "prompt: x\n").content_hash
