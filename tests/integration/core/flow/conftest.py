"""The engine of the other tests, with an agent that plans and a team of two."""

import asyncio
import json
from pathlib import Path

import pytest

from core.domain.events import ChecklistChanged
from core.domain.plans import Plan
from core.ports import ModelDelta
from core.tools.catalogue import all_tools
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls
from tests.integration.core.conftest import World, load_roster

AGENTS = {
    "threadhand": """
name: Lead
description: Plans.
prompt: You lead.
flow: planning
team: [research, data-analysis]
""",
    "research": """
name: Research
description: Finds things out.
prompt: You find things out.
tools: {enabled: [echo, wait, complete, ask, planning]}
""",
    "data-analysis": """
name: Data
description: Counts things.
prompt: You count.
model: openai/counter
dialect: xml
""",
}


@pytest.fixture
def flow_world(world: World, tmp_path: Path) -> World:
    folder = tmp_path / "agents"
    folder.mkdir()
    for name, text in AGENTS.items():
        (folder / f"{name}.yaml").write_text(text)
    box = ToolSet({**world.bench.toolbox().tools, "planning": all_tools()["planning"]})
    return world.with_deps(toolbox=box, roster=load_roster(world.database, folder))


Played = list[ModelDelta | Exception | asyncio.Event]


def planned(*steps: str, command: str = "create") -> Played:
    """A turn in which the planner sets the plan."""
    arguments = {"command": command, "plan_id": "x", "title": "Work", "steps": list(steps)}
    return calls(("planning", json.dumps(arguments)))


async def plan_of(world: World, run_id: str) -> Plan:
    run = await world.read_run(run_id)
    assert world.deps.stores.plans is not None
    return (await world.deps.stores.plans.read(run.thread_id))[-1]


async def shown(world: World, run_id: str) -> list[list[str]]:
    """The states of the checklists that people were shown, one after the other."""
    return [
        [item.state for item in event.items]
        for event in await world.events(run_id)
        if isinstance(event, ChecklistChanged)
    ]


def asked(world: World, index: int = -1) -> str:
    """The last message of a request to the model."""
    return str(world.model.requests[index].messages[-1]["content"])


def offered(world: World, index: int) -> list[str]:
    """The names of the tools that went along with a request."""
    tools = json.loads(json.dumps(world.model.requests[index].tools))
    return sorted(tool["function"]["name"] for tool in tools)


async def said(world: World, run_id: str) -> str:
    """What the run left in the thread."""
    return (await world.read_reply(run_id)).text
