"""What is made of the things that people do: stored once, refused politely, answered at once where possible."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bots.bootstrap.inbound import read_follow_modes
from bots.inbound.access import AccessPolicy
from bots.inbound.actions import LATE_SECONDS, CommandCalled, UserAction
from bots.inbound.commands.admin import AdminDeps
from bots.inbound.receiver import ActionReceiver
from bots.settings import load_settings
from core.domain.actions import ActorContext, AskAnswered, MessageDeleted, StopRequested
from core.domain.errors import ConfigurationError
from core.domain.threads import Ask, IncomingFile, Person, ThreadSnapshot
from storage.sql.stores.audit import SqlAuditLog
from storage.sql.stores.workspaces import SqlPairings
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import ALICE, BOB, HERE, ReceiverStage, command, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.support.narrow import require


async def test_a_mention_makes_a_run_and_wakes_worker_and_delivery(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(message())
    assert outcome.run_id is not None
    assert await stage.receiver.queue.get() == outcome.run_id
    assert stage.woken == [outcome.run_id]


async def test_the_word_stop_stops_what_runs_and_says_so(stage: ReceiverStage) -> None:
    run_id = (await stage.receiver.receive(message())).run_id
    assert (await stage.receiver.receive(command("stop"))).notice == "Stopping."
    assert (await stage.receiver.receive(command("stop"))).notice == ""  # the same one again
    assert [run.stop_requested for run in await runs_of(stage)] == [True]
    await stage.play(run_id)
    assert (await stage.receiver.receive(command("stop", "c2"))).notice == "Nothing is running here."


async def test_the_first_answer_wins(stage: ReceiverStage) -> None:
    asked = calls(("ask", '{"text": "Which?", "options": ["A", "B"]}'))
    stage.world.model.turns = [asked, text("ok")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    snapshot = require(await stage.world.deps.stores.conversations.find(HERE))
    assert snapshot.open_ask is not None
    ask_id = snapshot.open_ask.ask_id
    answers = [
        AskAnswered(
            address=HERE, dedupe_key=f"click{n}", ask_id=ask_id, text=value, person=person, sent_at=datetime.now(UTC)
        )
        for n, (value, person) in enumerate([("A", BOB), ("B", ALICE)])
    ]
    first = await stage.receiver.receive(answers[0])
    second = await stage.receiver.receive(answers[1])
    assert first.run_id is not None
    assert second.notice == "This question is no longer open."
    await stage.play(first.run_id)
    assert '<message from="bob (U2)"' in str(stage.world.model.requests[-1].messages[-1]["content"])


@pytest.mark.parametrize(
    ("channels", "sentence"),
    [
        ("C1=always", "for C1: the modes are follow, mention and quiet."),
        ("C1", "has a bad value .'C1'.: write channel=mode pairs"),
        ("#general=quiet", "has a bad value .'#general=quiet'.: write channel=mode pairs"),
    ],
)
def test_wrong_follow_modes_are_refused(channels: str, sentence: str) -> None:
    good = {"THREADHAND_FOLLOW_MODE": "mention", "THREADHAND_CHANNEL_FOLLOW_MODES": "C9=quiet, C1 = follow"}
    assert read_follow_modes(load_settings(good, None)) == {"": "mention", "C9": "quiet", "C1": "follow"}
    chosen = load_settings({"THREADHAND_CHANNEL_FOLLOW_MODES": channels}, None)
    with pytest.raises(ConfigurationError, match=f"THREADHAND_CHANNEL_FOLLOW_MODES:? {sentence}"):
        read_follow_modes(chosen)
    with pytest.raises(ConfigurationError, match="THREADHAND_FOLLOW_MODE has a bad value"):
        load_settings({"THREADHAND_FOLLOW_MODE": "always"}, None)


LONG_AGO = timedelta(seconds=LATE_SECONDS + 60)
PLAN = IncomingFile(file_ref="F1", name="plan.pdf")


async def late(stage: ReceiverStage, words: str, *, key: str, **changes: object) -> str | None:
    written = replace(message(words, key=key), sent_at=datetime.now(UTC) - LONG_AGO)
    sent = replace(written, **{"is_missed": True, **changes})
    return (await stage.receiver.receive(sent)).run_id


async def open_ask(stage: ReceiverStage) -> Ask:
    snapshot = await stage.world.deps.stores.conversations.find(HERE)
    assert snapshot is not None
    assert snapshot.open_ask is not None
    return snapshot.open_ask


async def click(stage: ReceiverStage, ask: Ask, value: str) -> str | None:
    answer = AskAnswered(
        address=HERE, dedupe_key="click", ask_id=ask.ask_id, text=value, person=ALICE, sent_at=datetime.now(UTC)
    )
    return (await stage.receiver.receive(answer)).run_id


async def test_a_mention_of_two_hours_ago_is_asked_about_first(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("Deleted.")]
    asked = await late(stage, "delete the staging bucket today", key="1", files=(PLAN,))
    (run,) = await runs_of(stage)
    assert (run.run_id, run.status, run.attempt) == (asked, "completed", 0)
    assert await stage.world.deps.stores.claims.claimable_runs() == ()
    assert stage.woken == [asked]
    ask = await open_ask(stage)
    assert (ask.text, ask.options[0]) == ("I was away. Still wanted?", "Yes, go ahead")

    wanted = await click(stage, ask, "Yes, go ahead")
    assert wanted not in (None, asked)
    (unread,) = await stage.world.deps.stores.conversations.unread_inputs(run.thread_id)
    assert unread.files == (PLAN,)
    await stage.play(wanted)
    said = [str(one["content"]) for one in stage.world.model.requests[0].messages[1:]]
    assert ["delete the staging bucket" in said[0], "I was away" in said[1]] == [True, True]
    assert "Yes, go ahead" in said[2]


THERE = replace(HERE, workspace_id="T2")


async def is_stopped(stage: ReceiverStage, run_id: str) -> bool:
    run = await stage.world.read_run(run_id)
    return run.stop_requested


async def open_question(stage: ReceiverStage) -> str | None:
    """The id of the question that waits here."""
    snapshot = await stage.world.deps.stores.conversations.find(HERE)
    return snapshot.open_ask.ask_id if snapshot and snapshot.open_ask else None


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


async def snapshot_of(stage: ReceiverStage) -> ThreadSnapshot:
    found = await stage.world.deps.stores.conversations.find(HERE)
    assert found is not None
    return found


async def ask(stage: ReceiverStage, options: str = '["Python", "new", "R"]') -> None:
    """Alice's run asks a question."""
    stage.world.model.turns = [calls(("ask", f'{{"text": "In which language?", "options": {options}}}')), text("ok")]
    await stage.play((await stage.receiver.receive(message())).run_id)
    assert (await snapshot_of(stage)).open_ask is not None


def typed(name: str, argument: str, words: str) -> CommandCalled:
    return replace(command(name, argument=argument), message=message(words, key="typed"))


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [("use", "python", "use python"), ("new", "", "New"), ("budget", "2027", "budget 2027")],
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
    status = replace(typed("status", "", "status"), dedupe_key="c3")
    assert "In which language?" in (await stage.receiver.receive(status)).notice
    called = command("use", "c2", argument="python")
    assert (await stage.receiver.receive(called)).notice.startswith("There is no agent")


DIRECT = replace(HERE, channel_id="D1")
IN_PRIVATE = ActorContext(is_direct=True)
CODE = re.compile(r"`([A-Z2-9]{4}-[A-Z2-9]{4})`")
ADMIN_HERE = AccessPolicy(channels=("C1",), users=("U1",), admins=("U1",))


def reception_with(stage: ReceiverStage, policy: AccessPolicy) -> ActionReceiver:
    database = stage.world.database
    pairings = SqlPairings(database)
    admin = AdminDeps(policy=policy, pairings=pairings, audit_log=SqlAuditLog(database))
    old = stage.receiver
    return replace(old, policy=policy, pairings=pairings, commands=replace(old.commands, admin=admin))


@pytest.fixture
def receiver(stage: ReceiverStage) -> ActionReceiver:
    return reception_with(stage, ADMIN_HERE)


def direct(words: str = "hello", *, key: str = "d1", author: Person = BOB) -> UserAction:
    return replace(message(words, key=key, author=author), address=DIRECT, actor=IN_PRIVATE)


def word(name: str, argument: str = "", *, key: str = "w1", person: Person = ALICE) -> CommandCalled:
    return CommandCalled(address=HERE, dedupe_key=key, name=name, argument=argument, person=person)


async def code_for(receiver: ActionReceiver, author: Person = BOB, key: str = "d1") -> str:
    told = (await receiver.receive(direct(key=key, author=author))).notice
    found = CODE.search(told)
    assert found, told
    return found[1]


async def test_a_stranger_gets_a_code_and_is_let_in_by_it(receiver: ActionReceiver) -> None:
    code = await code_for(receiver)
    assert (await receiver.receive(direct(key="d2"))).notice == ""
    answer = await receiver.receive(word("pair", code.lower()))
    assert answer.notice == "bob (U2) may write to me in direct messages now."
    assert (await receiver.receive(direct("now", key="d3"))).run_id is not None
    elsewhere = await receiver.receive(message("here", key="k1", author=BOB))
    assert elsewhere.run_id is None


async def test_stop_where_nothing_runs_says_so(stage: ReceiverStage) -> None:
    await stage.play((await stage.receiver.receive(message())).run_id)
    assert (await stage.receiver.receive(command("stop"))).notice == "Nothing is running here."
