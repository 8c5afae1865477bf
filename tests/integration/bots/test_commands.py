"""The words that are answered at once."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bots.inbound.access import AccessPolicy
from bots.inbound.commands.conversation import format_usage
from bots.inbound.commands.erasure import NOT_HERE, NOT_YOURS
from bots.inbound.commands.table import COMMANDS
from core.domain.threads import Usage
from core.failpoints import FailpointHit, arm
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import BOB, HERE, ReceiverStage, command, message
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require


async def test_new_starts_afresh_and_forget_deletes(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one"), text("two")]
    await stage.play((await stage.receiver.receive(message(key="m1"))).run_id)
    before = await stage.world.deps.stores.conversations.find(HERE)
    await stage.receiver.receive(command("new", "k1"))
    await stage.play((await stage.receiver.receive(message(key="m2"))).run_id)
    after = await stage.world.deps.stores.conversations.find(HERE)
    assert before is not None
    assert after is not None
    assert before.thread.thread_id != after.thread.thread_id
    assert len(stage.world.model.requests[1].messages) == 2
    await stage.receiver.receive(command("forget", "k2", argument="yes"))
    assert await stage.world.deps.stores.conversations.find(HERE) is None
    assert await stage.world.deps.stores.conversations.snapshot(after.thread.thread_id) is None
    assert await stage.world.deps.stores.conversations.snapshot(before.thread.thread_id) is None


async def test_new_closes_an_open_question_at_once(stage: ReceiverStage) -> None:
    stage.world.model.turns = [calls(("ask", '{"text": "Which?", "options": ["A", "B"]}'))]
    asked = await stage.play((await stage.receiver.receive(message(key="m1"))).run_id)
    before = require(await stage.world.deps.stores.conversations.find(HERE))
    assert before.open_ask is not None
    stage.woken.clear()
    await stage.receiver.receive(command("new", "k1"))
    assert stage.woken == [asked]
    assert require(await stage.world.deps.stores.conversations.snapshot(before.thread.thread_id)).open_ask is None


async def test_forget_deletes_what_was_before_new_for_those_who_worked_here(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    await stage.play((await stage.receiver.receive(message(key="m1"))).run_id)
    before = require(await stage.world.deps.stores.conversations.find(HERE))
    await stage.receiver.receive(command("new", "k1"))
    refused = await stage.receiver.receive(replace(command("forget", "k2", argument="yes"), person=BOB))
    assert refused.notice == NOT_YOURS
    assert await stage.world.deps.stores.conversations.snapshot(before.thread.thread_id)
    await stage.receiver.receive(command("forget", "k3", argument="yes"))
    assert await stage.world.deps.stores.conversations.snapshot(before.thread.thread_id) is None


async def test_status_files_and_usage_answer_at_once(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    outcome = await stage.receiver.receive(message())
    assert (await stage.receiver.receive(command("status", "k1"))).notice == ("Waiting in line for alice.")
    await stage.play(outcome.run_id)
    assert "completed" in (await stage.receiver.receive(command("status", "k2"))).notice
    assert "10 tokens in, 5 out, $0.0010" in (await stage.receiver.receive(command("usage", "k3"))).notice
    assert (await stage.receiver.receive(command("files", "k4"))).notice == ("There are no files yet.")


def test_what_of_a_cost_is_an_estimate_is_said() -> None:
    usage = Usage(input_tokens=1_000, cached_tokens=10, output_tokens=5, cost_usd=0.03)
    assert format_usage(usage) == "1,000 tokens in (10 cached), 5 out, $0.0300"
    assert format_usage(replace(usage, estimated_usd=0.02)).endswith("$0.0300 ($0.0200 of it estimated)")


async def test_what_is_to_be_forgotten_stays_findable_until_its_files_are_gone(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    before = require(await stage.world.deps.stores.conversations.find(HERE))
    sandboxes = require(stage.receiver.commands.sandboxes)
    sandbox = await sandboxes.open(before.thread.thread_id, fence=0)
    await sandbox.files.write("secret.txt", one_piece(b"x"))
    arm("storage.forget.before:raise")
    try:
        with pytest.raises(FailpointHit):
            await stage.receiver.receive(command("forget", argument="yes"))
    finally:
        arm("")

    sandbox = await sandboxes.open(before.thread.thread_id, fence=0)
    assert await sandbox.files.list(".") == ()
    await stage.receiver.receive(command("forget", argument="yes"))
    assert await stage.world.deps.stores.conversations.find(HERE) is None


async def one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content


ADMINS = AccessPolicy(workspaces=("*",), admins=("U1",))
NOTICE_CHARACTERS_MAX = 2000
"""What Discord takes in one message."""


async def answers(stage: ReceiverStage, name: str, argument: str = "", **changes: Any) -> str:
    called = replace(command(name, key=f"{name} {argument} {changes}", argument=argument), **changes)
    admin = replace(stage.receiver.commands.admin, policy=ADMINS)
    receiver = replace(stage.receiver, commands=replace(stage.receiver.commands, admin=admin))
    return (await receiver.receive(called)).notice


async def test_help_lists_the_words_of_admins_to_admins_only(stage: ReceiverStage) -> None:
    to_bob = await answers(stage, "help", "all", person=BOB)
    to_alice = await answers(stage, "help", "all")
    assert len(to_alice) <= NOTICE_CHARACTERS_MAX
    assert all(f"`{name}" in to_alice for name in COMMANDS)
    assert "`budget`" in to_bob
    for words in ("`pair CODE`", "`agents rollback AGENT NUMBER`", "`budget run"):
        assert words in to_alice
        assert words not in to_bob


async def test_help_explains_one_word(stage: ReceiverStage) -> None:
    assert "- `use NAME`: That agent works here" in await answers(stage, "help", "use")


@pytest.mark.parametrize(
    ("name", "argument", "form"),
    [
        ("pair", "ABC-123", "`pair CODE`"),
        ("audit", "10x", "`audit [NUMBER]`"),
        ("agents", "rollback coding", "`agents rollback AGENT NUMBER`"),
        ("plan", "remove", "`plan remove NUMBER`"),
    ],
)
async def test_a_command_of_the_wrong_form_is_answered_with_its_form(
    stage: ReceiverStage, name: str, argument: str, form: str
) -> None:
    assert form in await answers(stage, name, argument)


@pytest.mark.parametrize("name", ["status", "files", "usage", "plan", "new", "export", "forget"])
async def test_outside_a_thread_the_persons_newest_conversations_are_offered(stage: ReceiverStage, name: str) -> None:
    outside = replace(HERE, thread_key="")
    assert await answers(stage, name, address=outside) == NOT_HERE
    await stage.receiver.receive(message("Draw *the* sales"))
    told = await answers(stage, name, address=outside, dedupe_key="k2")
    assert f"you can write `{name}`" in told
    assert f"UTC](https://app.slack.com/client/{HERE.workspace_id}/C1/thread/C1-1.0): " in told
    assert await answers(stage, name, address=outside, person=BOB, dedupe_key="k3") == NOT_HERE


DIRECT = replace(HERE, channel_id="D1")
TOP = replace(DIRECT, thread_key="9.0")


async def in_direct(stage: ReceiverStage) -> str:
    """Plays a run in a direct message that asks a question. Returns its id."""
    stage.world.model.turns = [calls(("ask", '{"text": "Which?", "options": ["A", "B"]}')), text("one"), text("two")]
    asked = await stage.receiver.receive(replace(message(key="m1"), address=DIRECT))
    return await stage.play(asked.run_id)


async def test_words_that_only_begin_like_a_command_answer_an_open_question(stage: ReceiverStage) -> None:
    stage.world.model.turns = [calls(("ask", '{"text": "Which budget?"}')), text("one")]
    await stage.play((await stage.receiver.receive(message(key="m1"))).run_id)
    said = message("budget 2027", key="m2")
    called = replace(command("budget", "m2", argument="2027"), message=said, is_addressed=True)
    assert (await stage.receiver.receive(called)).run_id is not None
    assert require(await stage.world.deps.stores.conversations.find(HERE)).open_ask is None


async def test_a_command_at_the_top_of_a_direct_message_means_the_newest_conversation_there(
    stage: ReceiverStage,
) -> None:
    await in_direct(stage)
    for place in (TOP, replace(DIRECT, thread_key="")):
        top = replace(message("status", key="9.0"), address=place)
        assert "Which?" in await answers(stage, "status", address=place, message=top)
    assert await answers(stage, "status", address=TOP, person=BOB) == NOT_HERE
    running = await stage.receiver.receive(replace(message("go on", key="m2"), address=DIRECT))
    stop = replace(command("stop", "k9"), address=TOP, message=replace(message("stop", key="9.0"), address=TOP))
    assert (await stage.receiver.receive(stop)).run_id == running.run_id


@pytest.mark.parametrize(
    ("words", "sent_before", "is_answer"),
    [("B", timedelta(0), True), ("B", timedelta(hours=1), False), ("Why do you ask?", timedelta(0), False)],
)
async def test_an_answer_at_the_top_of_a_direct_message_answers_the_question_there(
    stage: ReceiverStage, words: str, sent_before: timedelta, *, is_answer: bool
) -> None:
    await in_direct(stage)
    said = replace(message(words, key="9.0"), address=TOP)
    await stage.receiver.receive(replace(said, sent_at=said.sent_at - sent_before))
    conversations = stage.world.deps.stores.conversations
    there, own = await conversations.find(DIRECT), await conversations.find(TOP)
    assert there is not None
    assert (there.open_ask is None, own is None) == (is_answer, is_answer)
