"""Showing a run: one status message, a new message for the answer, nothing twice and nothing lost."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from bots.delivery import next_step, poster
from bots.delivery.content import AnswerPart, AskPrompt, Content, Notice, RunStatus
from bots.inbound.actions import decide
from core.domain.actions import IncomingMessage, MessageEdited
from core.domain.approval import APPROVE_ONCE, CHOICES
from core.domain.errors import ModelRejected, SurfaceError, SurfaceRateLimited, SurfaceRefused, SurfaceUnclear
from core.domain.events import RunEvent
from core.domain.threads import Accept, Address
from core.ports import TextDelta
from core.run.execute import execute
from core.tools.tool import ToolSet
from storage.memory.event_bus import MemoryEventBus
from storage.sql.stores.deliveries import SqlDeliveries
from tests.fakes.streamed_model import calls, text
from tests.fakes.surface import Failure, Posted
from tests.integration.bots.delivery_stage import PATIENCE_SECONDS, Stage
from tests.integration.bots.delivery_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require_type
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


class SlowToLeaveBus(MemoryEventBus):
    """Takes a moment to unsubscribe, as a bus over the network does."""

    @asynccontextmanager
    async def subscribe(self, run_id: str) -> AsyncGenerator[AsyncIterator[RunEvent]]:
        async with super().subscribe(run_id) as events:
            yield events
            await asyncio.sleep(0.3)


async def test_the_status_shows_no_end_before_the_answer_is_posted(stage: Stage) -> None:
    deps = stage.world.deps
    stage.world.deps = replace(deps, messaging=replace(deps.messaging, bus=SlowToLeaveBus()))
    await stage.use_status_after(0)
    stage.world.model.turns = [calls(("echo", '{"text": "a"}')), text("The answer.")]
    states_before: list[str] = []

    def note(edited: Posted, content: Content) -> None:
        if isinstance(content, RunStatus) and not stage.of(AnswerPart):
            states_before.append(content.view.state)

    stage.surface.on_edit = note
    await stage.run()
    assert stage.of(AnswerPart)
    assert set(states_before) <= {"queued", "working"}


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


async def test_a_run_that_waits_asks_in_a_message_that_later_says_who_allowed_it(stage: Stage) -> None:
    guarded(stage).world.model.turns = [calls(("echo", '{"text": "a"}')), text("Said.")]
    run_id = await stage.execute()
    await until(lambda: stage.of(AskPrompt))
    (prompt,) = stage.of(AskPrompt)
    assert isinstance(prompt.newest, AskPrompt)
    assert prompt.newest.ask.options == CHOICES
    assert await stage.run(APPROVE_ONCE) == run_id
    assert (prompt.newest.ask.state, prompt.newest.ask.answer) == ("answered", APPROVE_ONCE)
    assert len(stage.of(RunStatus)) == len(stage.of(AskPrompt)) == 1
    (answer,) = stage.of(AnswerPart)
    assert answer.newest == AnswerPart(markdown="Said.", run_id=run_id)


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


async def test_while_it_waits_the_agent_does_not_type_and_the_request_says_so(stage: Stage) -> None:
    guarded(stage).world.model.turns = [calls(("echo", '{"text": "a"}')), text("Said.")]
    await stage.execute()
    await until(lambda: stage.surface.reactions[-1:] == [("1", "asking")])
    await until(lambda: not stage.surface.is_typing)
    (status,) = stage.of(RunStatus)

    def says_so() -> bool:
        shown = require_type(status.newest, RunStatus)
        return shown.view.state == "waiting" and shown.view.activity.startswith("Say a")

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


@pytest.mark.parametrize("takes_plain_text", [True, False])
async def test_a_message_that_the_platform_never_takes_holds_up_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, takes_plain_text: bool
) -> None:
    """Slack may fail with a 5xx at some content, again and again, while it takes everything else."""
    monkeypatch.setattr(poster, "PAUSES_SECONDS", (0.001,) * 5)
    monkeypatch.setattr(poster, "PAUSE_SECONDS", 0.001)
    post, tries = stage.surface.post, list[bool]()

    async def fail_at_poison(address: Address, content: Content, **named: Any) -> str:
        if isinstance(content, AnswerPart) and "poison" in content.markdown:
            tries.append(content.is_plain)
            if not (content.is_plain and takes_plain_text):
                raise SurfaceUnclear("internal_error")
        return await post(address, content, **named)

    monkeypatch.setattr(stage.surface, "post", fail_at_poison)
    stage.world.model.turns = [text("some poison"), text("a second answer")]
    await stage.run("one")
    await stage.run("two")
    assert tries == [False] * 5 + [True] * (1 if takes_plain_text else 2)
    notices = [getattr(one.newest, "markdown", "") for one in stage.of(Notice)]
    assert notices == ([] if takes_plain_text else [poster.FAILED_MESSAGE])
    said = [getattr(one.newest, "markdown", "") for one in stage.of(AnswerPart)]
    assert said == (["some poison"] if takes_plain_text else []) + ["a second answer"]
    assert await SqlDeliveries(stage.world.database).open_runs() == ()


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


async def test_a_rate_limit_of_days_is_tried_again_before_it_is_over(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poster, "RATE_LIMIT_SECONDS_MAX", 0.05)
    stage.world.model.turns = [text("The answer.")]
    limited = SurfaceRateLimited("slow down", retry_after_seconds=1_000_000)
    stage.surface.failures.append(Failure("post", limited))
    await stage.run()
    assert len(stage.of(AnswerPart)) == 1


async def test_a_quick_answer_is_the_only_message(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.use_status_after(60.0)
    for name in ("TYPING_AFTER_SECONDS", "QUEUED_AFTER_SECONDS"):  # as quick as these is no slow machine
        monkeypatch.setattr(next_step, name, 60.0)
    stage.world.model.turns = [
        text("Hi."),
        calls(("complete", '{"text": "Hello."}')),
        calls(("ask", '{"text": "Which?"}')),
    ]
    for _ in range(3):
        await stage.run()
    assert stage.of(RunStatus) == []
    assert [one for _, one in stage.surface.reactions] == ["seen", "done", "seen", "done", "seen", "asking"]
    assert not stage.surface.was_typing


async def test_a_run_without_steps_shows_its_status_after_a_while(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.use_status_after(0.05)
    monkeypatch.setattr(next_step, "TYPING_AFTER_SECONDS", 0.05)
    answer = asyncio.Event()
    stage.world.model.turns = [[TextDelta(text="Let me "), answer, *text("see.")]]
    _run_id, running = await stage.begin()
    await until(lambda: bool(stage.of(RunStatus)) and stage.surface.is_typing)
    answer.set()
    await running
    await stage.shown()
    (status,) = stage.of(RunStatus)
    states = [one.view.state for one in status.contents if isinstance(one, RunStatus)]
    assert len(states) > 1
    assert states[-1] == "completed"


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
    final = require_type(status.newest, RunStatus)
    assert (final.view.state, final.view.message) == ("failed", "The key was refused.")
    assert final.view.can_retry
    assert len(stage.surface.posted) == 1
    assert stage.surface.reactions[-1] == ("1", "failed")


async def test_a_question_whether_a_late_request_is_still_wanted(stage: Stage) -> None:
    await stage.use_status_after(60)
    address = stage.world.address
    sent = IncomingMessage(
        address=address,
        dedupe_key="1",
        message_ref="1.0",
        person=stage.world.author,
        text="delete the staging bucket today",
        sent_at=datetime.now(UTC) - timedelta(hours=2),
        is_missed=True,
        is_addressed=True,
    )
    receipt = await stage.world.inbox.accept_action(sent, partial(decide, sent, is_late=True))
    stage.delivery.wake(str(receipt.run_id))
    await stage.shown()
    (asked,) = stage.surface.posted
    assert isinstance(asked.newest, AskPrompt)
    assert (asked.newest.ask.text, asked.newest.ask.options) == ("I was away. Still wanted?", ("Yes, go ahead", "No"))
    assert stage.surface.reactions[-1] == ("1.0", "asking")


async def test_an_edit_of_the_request_is_said_to_be_read_next(stage: Stage) -> None:
    """Its message has its reaction already, so that only the status shows that the edit has come."""
    world, answer = stage.world, asyncio.Event()
    world.model.turns = [[TextDelta(text="Let me "), answer, *text("see.")], text("Done.")]
    run_id = await world.say("count the rows")
    stage.delivery.wake(run_id)
    running = asyncio.ensure_future(execute(run_id, world.deps))
    await until(lambda: bool(stage.of(RunStatus) and world.model.requests))

    def says_so() -> bool:
        shown = stage.of(RunStatus)[0].newest
        return isinstance(shown, RunStatus) and "read your new message next" in shown.view.activity

    stage.delivery.wake(run_id)
    await asyncio.sleep(0.1)
    assert not says_so()
    edit = MessageEdited(
        dedupe_key="edit",
        address=world.address,
        person=world.author,
        text="count the rows of sheet 2",
        message_ref="1",
        sent_at=datetime.now(UTC),
    )
    await world.inbox.accept_action(edit, lambda _: Accept())
    stage.delivery.wake(run_id)
    await until(says_so)
    answer.set()
    await running
    await stage.shown()
    assert not says_so()
