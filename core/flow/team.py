"""Putting a flow together for a run whose agent plans: its team, each with their own equipment."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from core.domain.messages import Message
from core.domain.threads import Run
from core.flow.setup import Board, Flow, Member
from core.flow.steps import members_of
from core.loop.loop import Surroundings
from core.run.agent_config import Equipment, kit_of
from core.run.engine import Engine
from core.run.recorder import RunRecorder


async def flow_of(
    kit: Equipment, run: Run, around: Surroundings, engine: Engine, recorder: RunRecorder
) -> Flow | None:
    """None: the agent of the run does not plan, or there is no place for plans.

    A team that has begun goes on as it began; of one that has not, members that are gone are left out. Raises
    AgentError where a version cannot be had any more.
    """
    agent = kit.agent
    if agent is None or agent.flow != "planning" or engine.plans is None or engine.roster is None:
        return None
    begun = members_of(await engine.plans.read(run.thread_id), run.run_id)
    team: dict[str, Member] = {}
    for name in agent.team:
        version = await engine.roster.member(name, begun.get(name))
        if version is None:
            continue
        own = await kit_of(version.definition, run, engine, recorder, around.switch)
        team[name] = Member(
            agent_version_id=version.agent_version_id,
            description=version.definition.description,
            around=with_kit(around, own),
        )
    return Flow(
        planner=around,
        team=team,
        plans=engine.plans,
        history=_history(run.thread_id, engine, recorder),
        board=Board(recorder),
        calls=partial(engine.journal.calls, run.run_id),
    )


def with_kit(around: Surroundings, kit: Equipment) -> Surroundings:
    """The same run in the hands of another agent."""
    return replace(
        around,
        model=kit.model,
        system_prompt=kit.system_prompt,
        dialect=kit.dialect,
        toolbox=kit.toolbox,
        context=replace(around.context, knowledge=kit.desk),
    )


def _history(
    thread_id: str, engine: Engine, recorder: RunRecorder
) -> Callable[[], Awaitable[Sequence[Message]]]:
    async def read() -> Sequence[Message]:
        await recorder.commit()
        return await engine.conversations.recent(thread_id)

    return read
