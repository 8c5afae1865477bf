"""Showing a run: one status message, a new message for the answer, nothing twice and nothing lost."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bots.delivery import next_step, poster, run_delivery
from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.delivery.next_step import LONG_QUEUE, ChatState
from bots.delivery.rate_limiter import MemoryRateBudget, RateLimit, RateLimiter
from bots.delivery.run_delivery import LONG_POST_QUEUE
from core.domain.approval import APPROVE_ONCE
from core.domain.errors import SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.threads import Accept, Address, Attention, Receipt
from core.failpoints import Failpoint
from core.ports import Precondition, Reaction
from core.run.execute import execute
from core.tools.replies import no_reply
from core.tools.tool import ToolSet
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import ELSEWHERE, Failure, FakeSurface, Posted
from tests.integration.bots.delivery_stage import PATIENCE_SECONDS, Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.bots.receiver_stage import message
from tests.support.narrow import require, require_type
from tests.support.waiting import until


async def test_the_answer_is_a_new_message_and_the_status_one_that_is_edited(stage: Stage) -> None:
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("The answer.")]
    run_id = await stage.run()
    (status,) = stage.of(RunStatus)
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="The answer.", run_id=run_id)
    final = require_type(status.newest, RunStatus)
    assert (final.view.state, final.view.can_stop) == ("completed", False)
    assert [task.title for task in final.view.tasks] == ["echo a"]


def guarded(stage: Stage) -> Stage:
    """`echo` needs an approval."""
    tools = dict(stage.world.bench.toolbox().tools)
    tools["echo"] = replace(tools["echo"], needs_approval=lambda params: f"Say {params.text}")
    stage.world.with_deps(toolbox=ToolSet(tools))
    return stage


LONG = json.dumps({"text": "SELECT 1;\n" * 400 + "DROP TABLE users"})


async def test_what_is_asked_is_shown_whole_in_a_file_above_the_card(stage: Stage) -> None:
    guarded(stage).world.model.turns = [calls(("echo", LONG)), text("Said.")]
    await asked(stage)
    file, card = (one for one in stage.surface.posted if one.file_name or is_card(one))
    assert isinstance(card.newest, AskPrompt)
    assert f"`{file.file_name}`" in card.newest.ask.text
    assert b"DROP TABLE users" in file.file_bytes
    assert file.file_bytes.count(b"    | SELECT 1;") == 400
    await stage.run(APPROVE_ONCE)
    assert len([one for one in stage.surface.posted if one.file_name]) == 1


async def test_a_refused_file_is_shown_in_messages_above_the_card(stage: Stage) -> None:
    guarded(stage).world.model.turns = [calls(("echo", LONG)), text("Said.")]
    stage.surface.failures.append(Failure("upload", SurfaceRefused("no files here", code="50013")))
    await asked(stage)
    notices = [one.newest.markdown for one in stage.of(Notice) if isinstance(one.newest, Notice)]
    assert sum(one.count("| SELECT 1;") for one in notices) == 400
    assert "DROP TABLE users" in notices[-1]
    assert is_card(stage.surface.posted[-1])


async def asked(stage: Stage) -> None:
    await stage.execute()
    await until(lambda: stage.of(AskPrompt))


def is_card(posted: Posted) -> bool:
    return bool(posted.contents) and isinstance(posted.newest, AskPrompt)


async def said(stage: Stage, ref: str, attention: Attention) -> Receipt:
    decision = Accept(is_steering=True, attention=attention)
    return await stage.world.inbox.accept_action(message("and the rows?", key=ref), lambda _: decision)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_run_that_says_nothing_leaves_no_trace(stage: Stage, is_silent: bool) -> None:
    world = stage.world
    tools = world.bench.toolbox().tools
    world.with_deps(toolbox=ToolSet({**tools, no_reply.name: no_reply}))
    world.model.turns = [calls((no_reply.name, "{}")) if is_silent else text("Seven rows.")]
    receipt = await said(stage, "2", "unsure")
    assert receipt.run_id is not None
    stage.delivery.wake(receipt.run_id)
    await execute(receipt.run_id, world.deps)
    await stage.shown()
    assert bool(stage.surface.posted) is not is_silent
    signs = [sign for _, sign in stage.surface.reactions if sign]
    assert signs == ([] if is_silent else ["done"])


def statuses(stage: Stage) -> list[RunStatus]:
    posted = [content for one in stage.of(RunStatus) for content in one.contents]
    return [content for content in posted if isinstance(content, RunStatus)]


async def test_a_run_that_waits_long_for_its_turn_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_step, "LONG_WAIT_SECONDS", 0.2)
    stage.world.model.turns = [text("Done.")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    await until(lambda: any(one.view.activity == LONG_QUEUE for one in statuses(stage)))
    await execute(run_id, stage.world.deps)
    await stage.shown()
    assert statuses(stage)[-1].view.state == "completed"
    assert LONG_QUEUE not in statuses(stage)[-1].view.activity


def told(surface: FakeSurface) -> list[RunStatus]:
    """The statuses that were posted outside the thread."""
    found = [one.newest for one in surface.posted if one.address in ELSEWHERE]
    return [one for one in found if isinstance(one, RunStatus)]


async def test_an_answer_that_may_not_be_posted_is_kept_and_its_requester_told(stage: Stage) -> None:
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("The answer.")]
    run_id, running = await stage.begin()
    await stage.world.bench.until_started("x")
    await until(lambda: bool(stage.of(RunStatus)))
    stage.surface.closed.add(stage.world.address)
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    (status,) = told(stage.surface)
    assert status.view.state == "failed"
    assert status.view.can_retry
    assert "the channel is archived" in status.view.message
    assert "answer is kept" in status.view.message
    assert stage.surface.reactions[-1][1] == "failed"

    stage.surface.closed.clear()
    assert await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    (answer,) = [one.newest for one in stage.of(AnswerPart)]
    assert isinstance(answer, AnswerPart)
    assert answer.markdown == "The answer."
    assert stage.surface.reactions[-1][1] == "done"
    assert not await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    assert len(told(stage.surface)) == 1


@pytest.mark.parametrize("refused", ["status", "reaction"])
async def test_no_work_is_done_in_a_thread_that_the_bot_may_not_write_to(stage: Stage, refused: str) -> None:
    stage.surface.closed.add(stage.world.address)
    if refused == "reaction":  # it then finds out at once whether it may write
        await stage.use_status_after(3600)
        stage.surface.failures.append(Failure("react", SurfaceRefused("no", code="is_archived")))
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("never")]
    run_id = await stage.world.say("go")
    stage.delivery.wake(run_id)
    async with asyncio.timeout(30):
        await execute(run_id, stage.world.deps)  # the wait is never released
    await stage.shown()
    assert (await stage.world.read_run(run_id)).status == "stopped"
    (status,) = told(stage.surface)
    assert "Press Retry once I may write there" in status.view.message
    assert stage.surface.reactions[-1][1] == "failed"


async def test_a_status_that_may_no_longer_be_edited_is_followed_by_its_end(stage: Stage) -> None:
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("The answer.")]
    _run_id, running = await stage.begin()
    await stage.world.bench.until_started("x")
    await until(lambda: bool(stage.of(RunStatus)))
    closed_window = SurfaceRefused("no", code="edit_window_closed")
    stage.surface.failures += [Failure("edit", closed_window)] * 20
    stage.world.bench.gate("x").set()
    await running
    await stage.shown()
    states = [one.newest.view.state for one in stage.of(RunStatus) if isinstance(one.newest, RunStatus)]
    assert states == ["completed"]
    assert stage.surface.reactions[-1][1] == "done"


@pytest.mark.parametrize("missing", ["part", "file"])
async def test_what_is_refused_after_the_first_message_is_kept_and_told(stage: Stage, missing: str) -> None:
    """The permission goes between two parts of an answer, or between the answer and its last file."""
    names = [f"{letter}.txt" for letter in "abc"] if missing == "file" else []
    words = " ".join(["word"] * (350 if missing == "part" else 1))
    arguments = json.dumps({"text": words, "attachments": ", ".join(names)})
    stage.world.model.turns = [calls(("complete", arguments))]
    run_id = await stage.world.say("go")
    for name in names:
        await stage.put_file(run_id, name, b"numbers")
    stage.surface.on_post = lambda: stage.surface.closed.add(stage.world.address)
    await stage.use_status_after(3600)
    stage.delivery.wake(run_id)
    await execute(run_id, stage.world.deps)
    await stage.shown()
    (status,) = told(stage.surface)
    assert "the channel is archived" in status.view.message
    assert stage.surface.reactions[-1][1] == "failed"
    assert len(stage.of(AnswerPart)) == 1

    stage.surface.closed.clear()
    stage.surface.on_post = lambda: None
    assert await SqlDeliveries(stage.world.database).reopen_delivery(run_id)
    stage.delivery.wake(run_id)
    await stage.shown()
    assert len(stage.of(AnswerPart)) == (2 if missing == "part" else 1)
    assert sorted(name for name, _ in stage.surface.all_files()) == names
    assert stage.surface.reactions[-1][1] == "done"


async def test_a_run_whose_events_are_gone_is_shown_as_ended(stage: Stage) -> None:
    """The bot was away for longer than events are kept."""
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("The answer.")]
    run_id, running = await stage.start_followed()
    await until(lambda: stage.of(RunStatus))
    await stage.delivery.close()
    stage.world.bench.gate("x").set()
    await running
    await stage.world.database.write(
        Failpoint("test.events"), lambda c: c.exec_driver_sql("DELETE FROM run_event").close()
    )
    stage.delivery = stage.new_delivery("worker-1")
    stage.delivery.start()
    await stage.shown()
    (status,) = stage.of(RunStatus)
    assert isinstance(status.newest, RunStatus)
    view = status.newest.view
    assert (view.state, view.can_stop) == ("completed", False)
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="The answer.", run_id=run_id)
    assert stage.surface.reactions[-1] == ("1", "done")


async def test_a_card_that_the_platform_never_takes_ends_its_run_and_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poster, "PAUSES_SECONDS", (0.001,) * 5)
    monkeypatch.setattr(poster, "PAUSE_SECONDS", 0.001)
    post = stage.surface.post

    async def fail_at_cards(address: Address, content: Content, **named: Any) -> str:
        if isinstance(content, AskPrompt):
            raise SurfaceUnclear("internal_error")
        return await post(address, content, **named)

    monkeypatch.setattr(stage.surface, "post", fail_at_cards)
    guarded(stage).world.model.turns = [calls(("echo", '{"text": "a"}')), text("done")]
    run_id = await stage.execute()

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await stage.world.runs(run_id))[-1].stop_requested:
            await asyncio.sleep(0.01)
    await execute(run_id, stage.world.deps)
    await stage.shown()
    assert stage.world.bench.said == []
    assert [run.status for run in await stage.world.runs(run_id)] == ["stopped"]


async def test_a_status_gives_way_to_answers(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.use_status_after(60)
    limiter = RateLimiter(MemoryRateBudget())
    limit = RateLimit(owner="slack:1", name="post", interval_seconds=1.0, burst=1, is_proactive=True)
    post = stage.surface.post

    async def post_in_turn(*arguments: Any, **named: Any) -> str:
        await limiter.admit([limit], wait_seconds_max=30)
        return await post(*arguments, **named)

    monkeypatch.setattr(stage.surface, "post", post_in_turn)
    await limiter.admit([limit], wait_seconds_max=0)  # another run's answer
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("Done.")]
    run_id = await stage.run()
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="Done.", run_id=run_id)
    assert statuses(stage) == []
    assert stage.surface.reactions[-1][1] == "done"


async def test_a_place_that_is_refused_too_is_followed_by_the_next(stage: Stage) -> None:
    stage.surface.closed |= {stage.world.address, ELSEWHERE[0]}
    stage.world.model.turns = [text("The answer.")]
    await stage.run()
    assert [one.address for one in stage.surface.posted] == [ELSEWHERE[1]]


async def test_a_bug_in_the_view_is_logged_once_and_the_run_shown_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> ChatState:
        monkeypatch.undo()
        raise KeyError("a bug")

    monkeypatch.setattr(run_delivery, "add_event", fail)
    stage.world.model.turns = [text("done")]
    await stage.run()
    assert [getattr(one.newest, "markdown", "") for one in stage.of(AnswerPart)] == ["done"]
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_a_question_that_could_not_be_posted_is_posted_later(stage: Stage) -> None:
    guarded(stage).world.model.turns = [
        calls(("wait", '{"text": "x"}')),
        calls(("echo", '{"text": "a"}')),
        text("Said."),
    ]
    _run_id, running = await stage.begin()
    await until(lambda: bool(stage.of(RunStatus)))
    stage.surface.failures.append(Failure("post", SurfaceError("the network is away")))
    stage.world.bench.gate("x").set()
    await running
    await until(lambda: bool(stage.of(AskPrompt)))
    assert stage.surface.failures == []
    await stage.run(APPROVE_ONCE)
    assert len(stage.of(AskPrompt)) == 1


async def test_an_answer_that_waits_long_is_announced_to_its_requester_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_step, "LONG_WAIT_SECONDS", 0.1)
    await stage.use_status_after(60)
    stage.world.model.turns = [text("Done.")]
    stage.surface.failures = [Failure("post", SurfaceRateLimited("slow down", retry_after_seconds=0.5))]
    run_id = await stage.run()
    run = await stage.world.read_run(run_id)
    assert stage.surface.told == [(stage.world.address, require(run.requester).person_id, LONG_POST_QUEUE)]
    assert len(stage.of(AnswerPart)) == 1


class Slow(FakeSurface):
    """Its reactions wait for the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.reacting = asyncio.Event()
        self.gate = asyncio.Event()

    async def react(
        self, address: Address, message_ref: str, reaction: Reaction | None, *, precondition: Precondition | None = None
    ) -> None:
        self.reacting.set()
        await self.gate.wait()
        await super().react(address, message_ref, reaction, precondition=precondition)


async def test_a_reaction_on_its_way_is_not_the_last_one(stage: Stage) -> None:
    stage.surface = surface = Slow()
    await stage.delivery.close()
    stage.delivery = stage.new_delivery("worker-1")
    stage.world.model.turns = [calls(("wait", '{"text": "x"}')), text("done")]
    run_id, running = await stage.begin()
    await until(surface.reacting.is_set)
    await stage.world.deps.stores.claims.remove_worker("worker-1")
    assert await SqlDeliveries(stage.world.database).claim(run_id, "worker-2")
    stage.world.bench.gate("x").set()
    await running
    surface.gate.set()
    await until(lambda: stage.delivery.active_runs() == 0)
    assert surface.reactions[-1] == ("1", "done")
