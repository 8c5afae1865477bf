"""Versions of agents, and the choice of a thread, on each database."""

import asyncio

from core.agents.definition import AgentDefinition
from tests.contracts.stores import ADDRESS, Stores

RESEARCH = AgentDefinition(
    agent_id="research",
    name="Research",
    description="Finds things out.",
    prompt="Name your sources.",
    model="openai/gpt-x",
    dialect="xml",
    tools={"enabled": ["ask"], "disabled": ["complete"]},
    mcp_servers=["tickets"],
    knowledge=["handbook.md", "notes"],
    flow="planning",
    team=["coding"],
)


def changed(prompt: str) -> AgentDefinition:
    return RESEARCH.model_copy(update={"prompt": prompt})


async def test_the_same_content_is_the_same_version_for_ever(stores: Stores) -> None:
    first = await stores.agents.record(RESEARCH)
    second = await stores.agents.record(changed("Be brief."))
    again = await stores.agents.record(RESEARCH)
    assert (first.number, second.number) == (1, 2)
    assert again == first
    assert first.content_hash == RESEARCH.content_hash != second.content_hash


async def test_each_agent_counts_its_own_versions(stores: Stores) -> None:
    other = RESEARCH.model_copy(update={"agent_id": "coding", "team": ()})
    await stores.agents.record(RESEARCH)
    assert (await stores.agents.record(other)).number == 1


async def test_a_version_is_read_as_it_was_recorded(stores: Stores) -> None:
    version = await stores.agents.record(RESEARCH)
    await stores.agents.record(changed("Be brief."))
    assert await stores.agents.version(version.agent_version_id) == version
    assert version.definition == RESEARCH
    assert await stores.agents.version("nobody") is None


async def test_recording_at_once_makes_each_version_once(stores: Stores) -> None:
    contents = [RESEARCH, RESEARCH, *(changed(f"{n % 3}") for n in range(9))]
    versions = await asyncio.gather(*(stores.agents.record(one) for one in contents))
    assert {one.number for one in versions} == {1, 2, 3, 4}
    assert len({one.agent_version_id for one in versions}) == 4
    assert await stores.count("agent_version") == 4


async def test_a_thread_keeps_its_choice(stores: Stores) -> None:
    receipt = await stores.say("hello")
    await stores.agents.choose(ADDRESS, "research")
    snapshot = await stores.conversations.find(ADDRESS)
    assert snapshot is not None
    assert (snapshot.thread.thread_id, snapshot.thread.agent_id) == (receipt.thread_id, "research")
    await stores.agents.choose(ADDRESS, "coding")
    again = await stores.conversations.find(ADDRESS)
    assert again is not None
    assert again.thread.agent_id == "coding"


async def test_a_choice_makes_the_conversation_where_there_is_none(stores: Stores) -> None:
    await stores.agents.choose(ADDRESS, "research")
    snapshot = await stores.conversations.find(ADDRESS)
    assert snapshot is not None
    assert (snapshot.thread.agent_id, snapshot.active_run) == ("research", None)
