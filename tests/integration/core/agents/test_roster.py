"""Who works where, and which version of it: in real runs on a real database."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from core.agents.roster import Roster
from core.domain.events import RunFailed
from core.run.execute import execute
from tests.fakes.streamed_model import text
from tests.integration.core.conftest import World, load_roster
from tests.integration.core.conftest import world as world


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


async def test_an_agent_that_is_gone_ends_the_run_with_a_plain_sentence(stage: RosterStage) -> None:
    world = stage.world
    await stage.roster.versions.choose_agent(world.address, "alpha")
    (stage.folder / "alpha.yaml").unlink()
    run_id = await world.run("hello")
    ended = (await world.events(run_id))[-1]
    assert isinstance(ended, RunFailed)
    assert ended.public_message.startswith("The agent alpha is not here any more.")
    assert [one.type for one in await world.history(run_id)] == ["user"]
