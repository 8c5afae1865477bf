"""Who works where, and which version of it: in real runs on a real database."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.agents.definition import AgentDefinition
from core.agents.roster import Roster, unknown_agent_message
from core.domain.errors import ModelRejected
from core.domain.events import RunFailed, TurnStarted
from core.run.execute import execute
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World, load_roster
from tests.integration.core.conftest import world as world
from tests.support.narrow import require


@dataclass
class RosterStage:
    """A world with agents in a folder."""

    world: World
    roster: Roster
    folder: Path
    chosen: dict[str, str] = field(default_factory=dict[str, str])

    def define(self, agent_id: str, prompt: str, more: str = "") -> None:
        made = self.folder / f".{agent_id}"
        made.write_text(f"name: {agent_id}\ndescription: Ours.\nprompt: {prompt}\n{more}")
        made.rename(self.folder / f"{agent_id}.yaml")

    async def heard(self, words: str = "hello") -> str:
        """The system prompt of a new run."""
        self.world.model.turns.append(text("ok"))
        await self.world.run(words)
        return str(self.world.model.requests[-1].messages[0]["content"])


@pytest.fixture
def stage(world: World, tmp_path: Path) -> RosterStage:
    folder = tmp_path / "agents"
    folder.mkdir()
    channels: dict[str, str] = {}
    roster = load_roster(world.database, folder, by_channel=channels)
    stage = RosterStage(world.with_deps(roster=roster), roster, folder, channels)
    for agent_id in ("alpha", "beta", "gamma"):
        stage.define(agent_id, f"I am {agent_id}.")
    return stage


async def test_a_message_goes_before_a_thread_before_a_channel_before_the_default(stage: RosterStage) -> None:
    world = stage.world
    assert "# Your role here" not in await stage.heard()
    stage.chosen[world.address.channel_id] = "alpha"
    assert "# Your role here\n\nI am alpha." in await stage.heard()
    await stage.roster.versions.choose_agent(world.address, "beta")
    assert "I am beta." in await stage.heard()
    named = await world.say("hello", agent_id="gamma")
    world.model.turns.append(text("ok"))
    await execute(named, world.deps)
    assert "I am gamma." in str(world.model.requests[-1].messages[0]["content"])
    assert "I am beta." in await stage.heard()


async def test_what_a_run_records_bears_its_agent(stage: RosterStage) -> None:
    world = stage.world
    await stage.roster.versions.choose_agent(world.address, "alpha")
    world.model.turns.append(text("ok"))
    run_id = await world.run("hello")
    run = await world.read_run(run_id)
    assert run.agent_version_id is not None
    version = require(await stage.roster.versions.find_version(run.agent_version_id))
    assert (run.agent_id, version.definition.prompt) == ("alpha", "I am alpha.")
    events = await world.deps.stores.conversations.events(run_id)
    assert any(isinstance(one.event, TurnStarted) for one in events)
    assert {(one.agent_id, one.agent_version_id) for one in events} == {("alpha", version.agent_version_id)}
    assert {one.agent_version_id for one in await world.messages(run_id)} == {version.agent_version_id}


async def test_an_agent_that_is_gone_ends_the_run_with_a_plain_sentence(stage: RosterStage) -> None:
    world = stage.world
    await stage.roster.versions.choose_agent(world.address, "alpha")
    (stage.folder / "alpha.yaml").unlink()
    run_id = await world.run("hello")
    ended = (await world.events(run_id))[-1]
    assert isinstance(ended, RunFailed)
    assert ended.public_message.startswith("The agent alpha is not here any more.")
    assert [one.type for one in await world.history(run_id)] == ["user"]


async def test_an_answer_is_for_the_agent_that_asked_and_a_retry_for_the_one_that_failed(stage: RosterStage) -> None:
    world = stage.world
    asking = await world.say("hello", agent_id="gamma")
    world.model.turns.append(calls(("ask", '{"text": "Which?"}')))
    await execute(asking, world.deps)
    assert "I am gamma." in await stage.heard("blue")

    failing = await world.say("hello", agent_id="beta")
    world.model.turns.append([ModelRejected("No.")])
    await execute(failing, world.deps)
    again = require(await world.stops.retry_run(failing, "retry-1", continues=False))
    world.model.turns.append(text("ok"))
    await execute(again, world.deps)
    assert "I am beta." in str(world.model.requests[-1].messages[0]["content"])


def test_a_strange_name_is_said_again_without_its_signs() -> None:
    agents: Mapping[str, AgentDefinition] = {
        name: AgentDefinition(agent_id=name, name="A", description="B") for name in ("b", "a")
    }
    assert unknown_agent_message("<!channel> *x*", agents) == "There is no agent channelx. There are: a, b."
    assert unknown_agent_message("<>", agents) == "There is no agent of that name. There are: a, b."
