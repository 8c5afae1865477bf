"""A flow that ended before its plan did goes on with it: after an answer, a limit, a failure, a stop, new words."""

import asyncio
import json
from dataclasses import replace

import pytest

from core.context.window import ContextPolicy
from core.domain.approval import APPROVE_ONCE
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.flow.flow_messages import CHOICES, FlowMessageTag, flow_message, parse_step_choice
from core.run.execute import execute
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls, text
from tests.integration.core.conftest import World
from tests.integration.core.flow.conftest import asked, plan_of, planned, said, shown
from tests.support.narrow import require

BLOCKED = [text("BLOCKED: no key")] * 3


async def blocked(world: World, *steps: str) -> str:
    world.model.turns = [planned(*steps), *BLOCKED]
    return await world.run("go in")


async def test_trying_again_starts_the_count_anew(flow_world: World) -> None:
    world = flow_world
    await blocked(world, "Open", "Enter")
    world.model.turns = [text("BLOCKED: jammed"), text("open"), text("inside"), text("I am in.")]
    run_id = await world.run("Try it again")
    assert "This is try 2. The one before it ended so: jammed" in asked(world, -3)
    assert await said(world, run_id) == "I am in."
    assert [step.status for step in (await plan_of(world, run_id)).steps] == ["completed"] * 2


async def test_a_skipped_step_stays_in_sight_and_is_left_out(flow_world: World) -> None:
    world = flow_world
    await blocked(world, "Open", "Enter")
    world.model.turns = [text("inside"), text("I am in.")]
    run_id = await world.run("skip")
    assert await said(world, run_id) == "I am in."
    plan = await plan_of(world, run_id)
    assert [(step.status, step.notes) for step in plan.steps] == [("skipped", "skipped"), ("completed", "inside")]
    assert (await shown(world, run_id))[-1] == ["blocked", "done"]


async def test_stopping_there_tells_what_was_done_and_asks_no_model(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned("Look", "Open"), text("a door"), *BLOCKED]
    await world.run("go in")
    run_id = await world.run("Stop here")
    assert await said(world, run_id) == ("The plan was given up. Done:\n- Look: a door\n\nNot done:\n- Open (no key)")
    assert world.model.turns == []
    world.model.turns = [planned("Other"), text("x"), text("y")]
    run_id = await world.run("Do something else")
    assert [step.text for step in (await plan_of(world, run_id)).steps] == ["Other"]


async def test_a_new_plan_keeps_what_is_done(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned("Look", "Open", "Enter"), text("a door"), *BLOCKED]
    await world.run("go in")
    world.model.turns = [planned("Climb in", command="update"), text("climbed"), text("I am in.")]
    run_id = await world.run("Make a new plan")
    plan = await plan_of(world, run_id)
    assert [(step.text, step.status) for step in plan.steps] == [("Look", "completed"), ("Climb in", "completed")]


async def test_an_agent_that_asks_in_its_step_gets_the_answer(flow_world: World) -> None:
    world = flow_world
    question = calls(("ask", '{"text": "Which door?", "options": ["Left", "Right"]}'))
    world.model.turns = [planned("[research] Open", "Enter"), question]
    first = await world.run("go in")
    assert await said(world, first) == "Which door?"
    assert (await shown(world, first))[-1] == ["blocked", "pending"]
    world.model.turns = [text("left is open"), text("in"), text("I am in.")]
    run_id = await world.run("Left")
    assert "Left" in asked(world, -3)
    assert "You find" in str(world.model.requests[-3].messages[0]["content"])
    assert await said(world, run_id) == "I am in."


async def test_what_cannot_pass_is_tried_once(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned("A"), [ModelRejected("No such model.")]]
    run_id = await world.run("go")
    assert "No such model." in await said(world, run_id)
    assert (await shown(world, run_id))[-1] == ["blocked"]


async def test_a_failed_last_answer_is_made_again_and_no_step_is(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned("A"), text("a"), [ModelRejected("No such model.")]]
    first = await world.run("go")
    run_id = require(await world.stops.retry_run(first, "key", continues=False))
    world.model.turns = [text("did a")]
    await execute(run_id, world.deps)
    assert await said(world, run_id) == "did a"


async def test_words_during_a_step_are_looked_at_before_the_next(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [
        planned("A", "B"),
        calls(("wait", '{"text": "x"}')),
        text("a"),
        planned("C", command="update"),
        text("c"),
        text("did a and c"),
    ]
    run_id, running = await world.begin("do a and b")
    async with asyncio.timeout(30):
        await world.bench.has_started("x").wait()
        await world.say("c instead of b, please")
        world.bench.gate("x").set()
        await running
    assert [(step.text, step.status) for step in (await plan_of(world, run_id)).steps] == [
        ("A", "completed"),
        ("C", "completed"),
    ]
    assert await said(world, run_id) == "did a and c"


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        *((words, choice) for choice, words in CHOICES.items()),
        ("skip!", "skip"),
        ("  RETRY ", "again"),
        ("skip the second chapter", None),
    ],
)
def test_choices_are_read_from_words_with_their_author_before_them(words: str, choice: str | None) -> None:

    message = flow_message(FlowMessageTag(phase="asked", key="k"), "x", thread_id="t", run_id="r")
    content: JsonObject = {"role": "user", "content": f"alice (U1):\n{words}"}
    assert parse_step_choice(replace(message, content=content, metadata={"author": "alice"})) == choice


def with_early_summaries(world: World) -> World:
    """Sums up a step after its second call of LONG."""
    return world.with_deps(context_policy=ContextPolicy(summary_tokens=5000, kept_tokens=2300))


LONG = calls(("echo", json.dumps({"text": "lorem ipsum dolor sit amet " * 300})))


async def test_words_before_a_summary_are_looked_at_before_the_next_step(flow_world: World) -> None:
    world = with_early_summaries(flow_world)
    world.model.turns = [
        planned("A", "B"),
        calls(("wait", '{"text": "x"}')),
        *(LONG, LONG, text("# Notes"), text("a")),
        planned("C", command="update"),
        text("c"),
        text("did a and c"),
    ]
    run_id, running = await world.begin("do a and b")
    await world.bench.until_started("x")
    await world.say("c instead of b, please")
    world.bench.gate("x").set()
    await running
    assert [step.text for step in (await plan_of(world, run_id)).steps] == ["A", "C"]


async def test_a_step_goes_on_after_a_summary_and_an_approval(flow_world: World) -> None:
    world = with_early_summaries(flow_world)
    tools = world.deps.defaults.toolbox.tools
    world.bench.gate("prod").set()
    deploy = replace(tools["wait"], needs_approval=lambda params: f"Deploy {params.text}")
    world.with_deps(toolbox=ToolSet({**tools, "wait": deploy}))
    deployed = calls(("wait", '{"text": "prod"}'))
    world.model.turns = [planned("[research] Deploy"), LONG, LONG, text("# Notes"), deployed, text("did"), text("all")]
    await world.run("deploy")
    assert "prod" not in world.bench.said
    run_id = await world.run(APPROVE_ONCE)
    assert "prod" in world.bench.said
    assert await said(world, run_id) == "all"
    prompts = [one for one in await world.history(run_id) if "You work on step 1" in str(one.content["content"])]
    assert len(prompts) == 1
