"""A run whose agent plans: the plan, its steps in the hands of the team, and one answer at the end."""

import asyncio
import json
from typing import Any

from core.flow.flow_messages import CHOICES
from core.flow.plan_changes import DEFAULT_STEPS
from core.loop.run_context import LoopPolicy
from core.ports import TextDelta
from tests.fakes.streamed_model import calls, ended, text
from tests.integration.core.conftest import World
from tests.integration.core.flow.conftest import asked, offered, plan_of, planned, shown
from tests.support.waiting import until

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
