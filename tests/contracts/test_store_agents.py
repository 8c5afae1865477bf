"""Versions of agents, and the choice of a thread, on each database."""

import asyncio

import pytest

from core.agents.definition import AgentDefinition
from core.domain.errors import ConfigurationError
from core.domain.threads import Person
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, Stores
from tests.support.narrow import require

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
    first = await stores.agents.find_or_add_version(RESEARCH)
    second = await stores.agents.find_or_add_version(changed("Be brief."))
    again = await stores.agents.find_or_add_version(RESEARCH)
    assert (first.number, second.number) == (1, 2)
    assert again == first
    assert first.content_hash == RESEARCH.content_hash != second.content_hash


async def test_recording_at_once_makes_each_version_once(stores: Stores) -> None:
    contents = [RESEARCH, RESEARCH, *(changed(f"{n % 3}") for n in range(9))]
    versions = await asyncio.gather(*(stores.agents.find_or_add_version(one) for one in contents))
    assert {one.number for one in versions} == {1, 2, 3, 4}
    assert len({one.agent_version_id for one in versions}) == 4
    assert await stores.count("agent_version") == 4


async def test_a_saved_version_is_current_until_it_is_reset(stores: Stores) -> None:
    """A version that is saved again keeps its number."""
    bob = Person(person_id="U2", name="bob")
    assert await stores.agents.saved_versions() == {}
    first = await stores.agents.make_current(RESEARCH, at=ADDRESS, by=bob)
    second = await stores.agents.make_current(changed("x"))
    assert (first.number, second.number) == (1, 2)
    assert await stores.agents.saved_versions() == {"research": second}
    assert await stores.agents.make_current(RESEARCH) == first
    assert await stores.agents.saved_versions() == {"research": first}
    assert not await stores.agents.reset_to_file("coding", at=ADDRESS, by=bob)
    assert await stores.agents.reset_to_file("research", at=ADDRESS, by=bob)
    assert await stores.agents.saved_versions() == {}
    assert await stores.agents.list_versions("research") == (first, second)
    assert await stores.count("audit_entry") == 2


async def test_a_version_of_a_newer_release_is_not_listed_and_says_so(stores: Stores) -> None:
    version = await stores.agents.make_current(RESEARCH)
    await stores.execute("UPDATE agent_version SET definition = '{}'")
    assert await stores.agents.list_versions("research") == ()
    assert await stores.agents.saved_versions() == {}
    with pytest.raises(ConfigurationError, match="newer release"):
        await stores.agents.find_version(version.agent_version_id)


async def test_a_run_is_signed_with_the_version_of_its_agent(stores: Stores) -> None:
    lease, version = await stores.started(), await stores.agents.find_or_add_version(RESEARCH)
    await stores.journal.write(lease, JournalEntry(agent=version))
    run = require(await stores.conversations.run(lease.run_id))
    assert (run.agent_id, run.agent_version_id) == ("research", version.agent_version_id)


async def test_saving_at_once_leaves_one_current_version(stores: Stores) -> None:
    await asyncio.gather(*(stores.agents.make_current(changed(f"{n}")) for n in range(8)))
    assert await stores.count("saved_agent") == 1
    assert await stores.count("agent_version") == 8


async def test_a_choice_makes_the_conversation_where_there_is_none(stores: Stores) -> None:
    await stores.agents.choose_agent(ADDRESS, "research")
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert (snapshot.thread.agent_id, snapshot.active_run) == ("research", None)
