"""Whose words, reactions and changes count for a request, a question or a whole channel, and whose do not."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bots.inbound.actions import CommandCalled
from core.domain.actions import MessageDeleted, MessageEdited
from core.domain.threads import ThreadSnapshot
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import BOB, HERE, ReceiverStage, command, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world

NOW = datetime.now(UTC)


async def snapshot_of(stage: ReceiverStage) -> ThreadSnapshot:
    found = await stage.world.deps.stores.conversations.find(HERE)
    assert found is not None
    return found


async def ask(stage: ReceiverStage, options: str = '["Python", "new", "R"]') -> None:
    """Alice's run asks a question."""
    stage.world.model.turns = [calls(("ask", f'{{"text": "In which language?", "options": {options}}}')), text("ok")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    assert (await snapshot_of(stage)).open_ask is not None


async def test_a_request_about_anothers_message_is_not_theirs_to_change(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(message("sum this up", key="m1"))
    edit = MessageEdited(
        address=HERE, dedupe_key="e1", message_ref="m1", person=BOB, text="delete the table", sent_at=NOW
    )
    await stage.receiver.receive(edit)
    gone = MessageDeleted(address=HERE, dedupe_key="d1", message_ref="m1", person=BOB, sent_at=NOW)
    await stage.receiver.receive(gone)
    stage.world.model.turns = [text("ok")]
    await stage.play(outcome.run_id)
    sent = str(stage.world.model.requests[0].messages)
    assert "sum this up" in sent
    assert "delete the table" not in sent
    assert [run.status for run in await runs_of(stage)] == ["completed"]


def typed(name: str, argument: str, words: str) -> CommandCalled:
    return replace(command(name, argument=argument), message=message(words, key="typed"))


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [("use", "python", "use python"), ("new", "", "New"), ("use", "pandas", "use pandas")],
)
async def test_words_of_a_command_may_answer_the_open_question(
    stage: ReceiverStage, name: str, argument: str, words: str
) -> None:
    await ask(stage)
    outcome = await stage.receiver.receive(typed(name, argument, words))
    assert outcome.run_id is not None
    await stage.play(outcome.run_id)
    # an option reaches the model as it was offered
    told = "new" if name == "new" else words
    assert f"\n{told}\n" in str(stage.world.model.requests[-1].messages[-1]["content"])


async def test_without_a_question_or_as_a_slash_command_they_are_the_command(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(typed("use", "python", "use python"))
    assert outcome.notice.startswith("There is no agent")
    await ask(stage)
    called = command("use", "c2", argument="python")
    assert (await stage.receiver.receive(called)).notice.startswith("There is no agent")
