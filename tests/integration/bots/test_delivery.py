"""Showing a run: one status message, a new message for the answer, nothing twice and nothing lost."""

import asyncio
from dataclasses import replace

import pytest

from bots.delivery.content import AnswerPart, AskPrompt, RunStatus
from core.domain.approval import APPROVE_ONCE, CHOICES
from core.domain.errors import (
    ModelRejected,
    SurfaceError,
    SurfaceRateLimited,
    SurfaceRefused,
    SurfaceUnclear,
)
from core.run.execute import execute
from core.tools.tool import ToolSet
from tests.fakes.played_model import calls, text
from tests.fakes.surface import Failure
from tests.integration.bots.delivery_stage import Stage, until
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world


async def test_the_answer_is_a_new_message_and_the_status_one_that_is_edited(stage: Stage) -> None:
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("The answer.")]
    await stage.run()
    (status,) = stage.of(RunStatus)
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="The answer.")
    final = status.newest
    assert isinstance(final, RunStatus)
    assert (final.view.state, final.view.can_stop) == ("completed", False)
    assert [task.title for task in final.view.tasks] == ["echo a"]


async def test_the_request_carries_one_reaction_at_a_time_and_two_in_all(stage: Stage) -> None:
    stage.world.model.turns = [text("ok")]
    await stage.run()
    assert stage.surface.reactions == [("1", "seen"), ("1", "done")]


def guarded(stage: Stage) -> Stage:
    """`echo` needs an approval."""
    tools = dict(stage.world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text}")
    stage.world.with_engine(toolbox=ToolSet(tools))
    return stage


async def test_a_run_that_waits_asks_in_a_message_that_later_says_who_allowed_it(
    stage: Stage,
) -> None:
    guarded(stage).world.model.turns = [calls(("echo", '{"text": "a"}')), text("Said.")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await execute(run_id, stage.world.engine)
    async with asyncio.timeout(15):
        while not stage.of(AskPrompt):
            await asyncio.sleep(0.01)
    (prompt,) = stage.of(AskPrompt)
    assert isinstance(prompt.newest, AskPrompt)
    assert prompt.newest.ask.options == CHOICES
    assert await stage.run(APPROVE_ONCE) == run_id
    assert (prompt.newest.ask.state, prompt.newest.ask.answer) == ("answered", APPROVE_ONCE)
    assert len(stage.of(RunStatus)) == len(stage.of(AskPrompt)) == 1
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="Said.")


@pytest.mark.slow
async def test_a_second_question_right_after_the_first_is_shown_too(stage: Stage) -> None:
    """The run goes on and asks again before the status message may be edited."""
    stage.surface.edit_interval_seconds = 2.0
    guarded(stage).world.model.turns = [
        calls(("echo", '{"text": "a"}')),
        calls(("echo", '{"text": "b"}')),
        text("Said."),
    ]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await execute(run_id, stage.world.engine)
    await until(lambda: len(stage.of(AskPrompt)) == 1)
    assert await stage.world.run(APPROVE_ONCE) == run_id
    await until(lambda: len(stage.of(AskPrompt)) == 2)
    first, second = (one.newest for one in stage.of(AskPrompt))
    assert isinstance(first, AskPrompt)
    assert isinstance(second, AskPrompt)
    assert (first.ask.state, second.ask.state) == ("answered", "open")
    assert await stage.run(APPROVE_ONCE) == run_id
    assert stage.world.bench.said == ["a", "b"]


async def test_a_question_that_could_not_be_posted_is_posted_later(stage: Stage) -> None:
    guarded(stage).world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("echo", '{"text": "a"}')),
        text("Said."),
    ]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    await until(lambda: bool(stage.of(RunStatus)))
    stage.surface.failures.append(Failure("post", SurfaceError("the network is away")))
    stage.world.bench.gate("x").set()
    await running
    await until(lambda: bool(stage.of(AskPrompt)))
    assert stage.surface.failures == []
    await stage.run(APPROVE_ONCE)
    assert len(stage.of(AskPrompt)) == 1


async def test_while_it_waits_the_agent_does_not_type_and_the_request_says_so(
    stage: Stage,
) -> None:
    guarded(stage).world.model.turns = [calls(("echo", '{"text": "a"}')), text("Said.")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await execute(run_id, stage.world.engine)
    await until(lambda: stage.surface.reactions[-1:] == [("1", "asking")])
    await until(lambda: not stage.surface.is_typing)
    (status,) = stage.of(RunStatus)

    def says_so() -> bool:
        shown = status.newest
        assert isinstance(shown, RunStatus)
        return (shown.view.state, shown.view.activity) == ("waiting", "Say a")

    await until(says_so)
    await stage.run(APPROVE_ONCE)
    assert stage.surface.reactions[0] == ("1", "seen")
    assert stage.surface.reactions[-1] == ("1", "done")
    assert not stage.surface.is_typing


async def test_edits_keep_their_pace(stage: Stage) -> None:
    stage.surface.edit_interval_seconds = 0.3
    many = [calls(("echo", f'{{"text": "{n}"}}')) for n in range(40)]
    stage.world.model.turns = [*many, text("done")]
    await stage.run()
    assert stage.surface.edits <= 20
    assert len(stage.of(RunStatus)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_carried_out", [True, False])
@pytest.mark.parametrize("operation", ["post", "upload"])
async def test_after_an_unclear_failure_nothing_is_there_twice(
    stage: Stage, operation: str, is_carried_out: bool
) -> None:
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("complete", '{"text": "Done.", "attachments": "a.txt"}')),
    ]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    async with asyncio.timeout(5):
        await stage.world.bench.has_started("x").wait()
    await stage.put_file(run_id, "a.txt", b"content")
    unclear = SurfaceUnclear("no answer came")
    stage.surface.failures.append(Failure(operation, unclear, is_carried_out))
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    assert len(stage.of(AnswerPart)) == 1
    assert [one.file_bytes for one in stage.surface.posted if one.file_name] == [b"content"]
    assert len(stage.of(RunStatus)) == 1


async def test_a_rate_limit_is_waited_out(stage: Stage) -> None:
    stage.world.model.turns = [text("The answer.")]
    limited = SurfaceRateLimited("slow down", retry_after_seconds=0.1)
    stage.surface.failures += [Failure("post", limited), Failure("edit", limited)]
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1
    assert len(stage.of(RunStatus)) == 1


async def test_a_limited_status_message_does_not_keep_the_answer_back(stage: Stage) -> None:
    limited = SurfaceRateLimited("slow down", retry_after_seconds=60)
    stage.world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("wait", '{"text": "y"}')),
        text("The answer."),
    ]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    await until(lambda: bool(stage.of(RunStatus)))
    stage.surface.failures.append(Failure("edit", limited))
    stage.world.bench.gate("x").set()
    await until(lambda: not stage.surface.failures)
    stage.world.bench.gate("y").set()
    await running
    await until(lambda: bool(stage.of(AnswerPart)))


async def test_a_refused_status_message_does_not_keep_the_answer_back(stage: Stage) -> None:
    stage.world.model.turns = [text("The answer.")]
    refused = SurfaceRefused("it was deleted", code="message_not_found")
    stage.surface.failures += [Failure("edit", refused) for _ in range(10)]
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1


async def test_a_failed_run_says_so_once_in_the_status(stage: Stage) -> None:
    stage.world.model.turns = [[ModelRejected("The key was refused.")]]
    await stage.run()
    (status,) = stage.of(RunStatus)
    final = status.newest
    assert isinstance(final, RunStatus)
    assert (final.view.state, final.view.message) == ("failed", "The key was refused.")
    assert final.view.can_retry
    assert len(stage.surface.posted) == 1
    assert stage.surface.reactions[-1] == ("1", "failed")


async def test_an_answered_question_shows_who_answered_also_after_a_restart(stage: Stage) -> None:
    stage.world.model.turns = [
        calls(("ask", '{"text": "Which?", "options": ["A", "B"]}')),
        text("A it is."),
    ]
    await stage.run()
    (prompt,) = stage.of(AskPrompt)
    await stage.delivery.close()
    run_id = await stage.world.say("A")
    await execute(run_id, stage.world.engine)
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    content = prompt.newest
    assert isinstance(content, AskPrompt)
    assert content.ask.answered_by is not None
    assert (content.ask.state, content.ask.answer) == ("answered", "A")
    assert content.ask.answered_by.name == "alice"
    assert len(stage.of(AskPrompt)) == 1


async def test_a_new_process_takes_the_same_status_message_up(stage: Stage) -> None:
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, stage.world.engine))
    await until(lambda: bool(stage.of(RunStatus)))
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    (status,) = stage.of(RunStatus)
    assert isinstance(status.newest, RunStatus)
    assert status.newest.view.state == "completed"
    assert len(stage.of(AnswerPart)) == 1


async def test_a_reaction_that_fails_changes_nothing(stage: Stage) -> None:
    refused = SurfaceRefused("no", code="no_permission")
    stage.surface.failures += [Failure("react", refused), Failure("react", refused)]
    stage.world.model.turns = [text("ok")]
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1
