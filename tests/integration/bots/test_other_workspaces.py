"""What somebody in one workspace can do with the ids of another: nothing."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

import pytest

from bots.inbound.actions import RunButtonPressed
from core.domain.actions import AskAnswered, MessageDeleted, StopRequested
from tests.fakes.streamed_model import calls
from tests.integration.bots.receiver_stage import BOB, HERE, ReceiverStage, command, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require

THERE = replace(HERE, workspace_id="T2")


async def is_stopped(stage: ReceiverStage, run_id: str) -> bool:
    run = await stage.world.read_run(run_id)
    return run.stop_requested


async def open_question(stage: ReceiverStage) -> str | None:
    """The id of the question that waits here."""
    snapshot = await stage.world.deps.stores.conversations.find(HERE)
    return snapshot.open_ask.ask_id if snapshot and snapshot.open_ask else None


def pressed(run_id: str, action: Literal["stop", "retry", "continue"]) -> RunButtonPressed:
    return RunButtonPressed(address=THERE, dedupe_key=f"p-{action}", run_id=run_id, action=action, person=BOB)


@pytest.mark.parametrize("action", ["stop", "retry", "continue"])
async def test_a_button_of_a_run_of_another_workspace_does_nothing(
    stage: ReceiverStage, action: Literal["stop", "retry", "continue"]
) -> None:
    run_id = (await stage.receiver.receive(message())).run_id or ""
    outcome = await stage.receiver.receive(pressed(run_id, action))
    assert outcome.notice == "That is not a run of this conversation."
    assert not await is_stopped(stage, run_id)
    assert await stage.world.deps.stores.conversations.find(THERE) is None


async def test_a_question_of_another_workspace_takes_no_answer(stage: ReceiverStage) -> None:
    stage.world.model.turns = [calls(("ask", '{"text": "Which?", "options": ["a", "b"]}'))]
    await stage.play((await stage.receiver.receive(message())).run_id)
    ask_id = require(await open_question(stage))
    answer = AskAnswered(address=THERE, dedupe_key="a", ask_id=ask_id, text="a", person=BOB, sent_at=datetime.now(UTC))
    assert (await stage.receiver.receive(answer)).notice == "This question is no longer open."
    assert await open_question(stage) == ask_id


async def test_a_cross_a_deletion_and_words_reach_their_own_workspace_alone(stage: ReceiverStage) -> None:
    run_id = (await stage.receiver.receive(message(key="m1"))).run_id or ""
    cross = StopRequested(address=THERE, dedupe_key="x", message_ref="m1", person=BOB)
    gone = MessageDeleted(address=THERE, dedupe_key="d", message_ref="m1", person=BOB, sent_at=datetime.now(UTC))
    for inbound in (cross, gone):
        assert (await stage.receiver.receive(inbound)).is_ignored
    names: tuple[str, ...] = ("stop", "forget", "status", "new")
    for name in names:
        told = await stage.receiver.receive(replace(command(name, key=name), address=THERE))
        assert "Working" not in told.notice
    assert not await is_stopped(stage, run_id)
    assert await stage.world.deps.stores.conversations.find(HERE) is not None


async def test_the_same_thread_key_in_two_workspaces_is_two_conversations(stage: ReceiverStage) -> None:
    here = await stage.receiver.receive(message(key="m1"))
    there = await stage.receiver.receive(replace(message(key="m2"), address=THERE))
    assert here.run_id != there.run_id
    found = require(await stage.world.deps.stores.conversations.find(THERE))
    runs = await stage.world.deps.stores.conversations.runs(found.thread.thread_id)
    assert [one.run_id for one in runs] == [there.run_id]
