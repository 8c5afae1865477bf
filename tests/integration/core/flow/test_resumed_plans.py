"""A flow that ended before its plan did goes on with it: after an answer, a limit, a failure, a stop, new words."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from core.context.window import ContextPolicy
from core.domain.approval import APPROVE_ONCE
from core.domain.errors import ModelRejected
from core.domain.json import JsonObject
from core.flow.flow_messages import CHOICES, FlowMessageTag, flow_message, parse_step_choice
from core.flow.plan_changes import DEFAULT_STEPS
from core.loop.run_context import LoopPolicy
from core.ports import TextDelta
from core.run.execute import execute
from core.tools.tool import ToolSet
from tests.fakes.streamed_model import calls, ended, text
from tests.integration.core.conftest import World
from tests.integration.core.flow.conftest import asked, offered, plan_of, planned, said, shown
from tests.support.narrow import require
from tests.support.waiting import until

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


TWO = ("[research] Find the figures", "[DATA_ANALYSIS] Add them up")


async def test_each_step_is_done_by_the_agent_it_names_and_one_answer_ends_it(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [
        planned(*TWO),
        calls(("echo", '{"text": "a"}')),
        text("The figures are 1 and 2."),
        text("The sum is 3."),
        text("It is 3."),
    ]
    run_id = await world.run("add the figures")
    reply = await world.read_reply(run_id)
    assert (reply.kind, reply.text) == ("answer", "It is 3.")
    assert await shown(world, run_id) == [
        ["pending", "pending"],
        ["active", "pending"],
        ["done", "pending"],
        ["done", "active"],
        ["done", "done"],
    ]
    plan = await plan_of(world, run_id)
    assert [step.result for step in plan.steps] == ["The figures are 1 and 2.", "The sum is 3."]
    requests = world.model.requests
    prompts = [str(one.messages[0]["content"]) for one in requests]
    roles = ["You lead", "You find", "You find", "You count", "You lead"]
    assert all(role in prompt for role, prompt in zip(roles, prompts, strict=True))
    assert [one.model for one in requests] == ["test", "test", "test", "openai/counter", "test"]


async def test_the_planner_is_told_the_team_and_steps_what_they_are(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned(*TWO), text("one"), text("two"), text("both")]
    await world.run("add the figures")
    assert "`[research]` Finds things out." in asked(world, 0)
    assert "`[data-analysis]` Counts things." in asked(world, 0)
    assert "You work on step 1 now" in asked(world, 1)
    assert "2. [ ] [DATA_ANALYSIS] Add them up" in asked(world, 1)
    assert "You work on step 2 now" in asked(world, 2)
    assert "1. [✓] [research] Find the figures" in asked(world, 2)
    assert offered(world, 0) == ["ask", "complete", "planning"]
    assert offered(world, 1) == ["ask", "complete", "echo", "wait"]


async def test_a_name_that_nobody_has_is_told_and_stored_nowhere(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned("[wizard] Do magic"), planned("[research] Do it"), text("done"), text("all done")]
    run_id = await world.run("go")
    assert "Nobody here is named wizard. The agents are: research, data-analysis." in asked(world, 1)
    assert [step.text for step in (await plan_of(world, run_id)).steps] == ["[research] Do it"]


async def test_a_planner_that_never_gets_it_right_is_asked_three_times(flow_world: World) -> None:
    world = flow_world
    wrong = planned("[wizard] Do magic")
    world.model.turns = [*([wrong] * 3), text("done"), text("right"), text("Here.")]
    run_id = await world.run("go")
    assert [step.text for step in (await plan_of(world, run_id)).steps] == list(DEFAULT_STEPS)


async def test_what_needs_no_work_is_answered_without_a_plan(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [calls(("complete", '{"text": "Hello!"}'))]
    run_id = await world.run("hi")
    assert (await world.read_reply(run_id)).text == "Hello!"
    assert await shown(world, run_id) == []


async def test_a_step_that_fails_is_tried_three_times_with_the_reason_and_then_asked_about(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [
        planned("[research] Open the door", "Go in"),
        text("BLOCKED: it is locked"),
        text("**BLOCKED:** still locked"),
        text("BLOCKED - no key anywhere"),
    ]
    run_id = await world.run("go in")
    assert "This is try 2. The one before it ended so: it is locked" in asked(world, 2)
    assert "This is try 3. The one before it ended so: still locked" in asked(world, 3)
    reply = await world.read_reply(run_id)
    assert (reply.kind, reply.options) == ("ask", tuple(CHOICES.values()))
    assert "no key anywhere" in reply.text
    assert (await shown(world, run_id))[-1] == ["blocked", "pending"]
    assert world.model.turns == []


async def test_a_step_without_end_is_tried_again_and_then_asked_about(flow_world: World) -> None:
    """Others try a step that raises for ever: 291 calls in three seconds."""
    world = flow_world
    again = calls(("echo", '{"text": "same"}'))
    world.model.turns = [planned("Spin"), *([again] * 30)]
    run_id = await world.run("spin")
    assert (await world.read_reply(run_id)).kind == "ask"
    assert len(world.model.requests) <= 1 + 3 * 4
    assert (await shown(world, run_id))[-1] == ["blocked"]


async def test_the_turns_of_the_run_are_those_of_all_its_steps(flow_world: World) -> None:
    world = flow_world.with_deps(policy=LoopPolicy(turns_max=6))
    world.model.turns = [planned("A", "B"), *[calls(("echo", json.dumps({"text": str(n)}))) for n in range(9)]]
    run_id = await world.run("go")
    ended = await world.read_end(run_id)
    assert (ended.finish_reason, ended.can_continue) == ("max_iterations", True)
    assert len(world.model.requests) == 6
    assert (await shown(world, run_id))[-1] == ["blocked", "pending"]


async def test_files_that_steps_hand_over_come_with_the_answer(flow_world: World) -> None:
    world = flow_world
    link = "https://example.com/a.csv"
    world.model.turns = [
        planned("A"),
        calls(("complete", json.dumps({"text": "made", "attachments": [link]}))),
        text("Here it is."),
    ]
    run_id = await world.run("go")
    assert (await world.read_reply(run_id)).attachments == (link,)


async def test_a_model_without_words_for_its_report_leaves_the_state_of_the_plan(flow_world: World) -> None:
    world = flow_world
    world.model.turns = [planned("A"), text("The result is 42."), *[text("")] * 3]
    assert "The result is 42." in (await world.read_reply(await world.run("go"))).text


async def test_a_planner_without_words_for_a_message_goes_on_with_the_plan(flow_world: World) -> None:
    world, is_thanked = flow_world, asyncio.Event()
    step: list[Any] = [TextDelta(text="a"), is_thanked, ended()]
    world.model.turns = [planned("A", "B"), step, *[text("")] * 3, text("b"), text("did both")]
    run_id, running = await world.begin("go")
    await until(lambda: len(world.model.requests) == 2)
    await world.say("thanks", message_ref="2")
    is_thanked.set()
    await running
    assert (await world.read_reply(run_id)).text == "did both"
    assert [step.result for step in (await plan_of(world, run_id)).steps] == ["a", "b"]
