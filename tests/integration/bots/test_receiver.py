"""What is made of the things that people do: stored once, refused politely, answered at once where possible."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bots.bootstrap.inbound import read_follow_modes
from bots.inbound.access import AccessPolicy
from bots.inbound.actions import CALLED_LONG_AGO, LATE_SECONDS, CommandCalled, Outcome, UserAction
from bots.inbound.commands import schedules as told
from bots.settings import Settings, load_settings
from bots.setup import hooks
from core.domain.actions import ActorContext, MessageDeleted, StopRequested
from core.domain.errors import ConfigurationError
from core.domain.schedules import DEFAULT_LIMITS, ScheduleState, Timing, build_commands
from core.domain.threads import IncomingFile, Person
from storage.sql.database import opened_database
from storage.sql.stores.schedules import SqlSchedules
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import (
    ADMINS,
    ALICE,
    BOB,
    HERE,
    ReceiverStage,
    command,
    message,
    runs_of,
    save_schedule,
)
from tests.integration.bots.receiver_stage import stage as stage
from tests.support.narrow import require, require_type


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
    assert await stage.told("stop") == "Nothing is running here."


async def test_the_first_answer_wins(stage: ReceiverStage) -> None:
    asked = calls(("ask", '{"text": "Which?", "options": ["A", "B"]}'))
    stage.world.model.turns = [asked, text("ok")]
    await stage.run()
    ask_id = (await stage.open_ask()).ask_id
    first = await stage.click(ask_id, "A", BOB)
    second = await stage.click(ask_id, "B")
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


async def test_a_command_of_two_hours_ago_is_not_carried_out(stage: ReceiverStage) -> None:
    await stage.run("hello")
    called = replace(command("forget", argument="yes"), is_missed=True, sent_at=datetime.now(UTC) - LONG_AGO)
    answers = [(await stage.receiver.receive(called)).notice for _ in range(2)]
    assert answers == [CALLED_LONG_AGO, ""]
    assert await stage.snapshot() is not None


async def test_a_mention_of_two_hours_ago_is_asked_about_first(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("Deleted.")]
    asked = await late(stage, "delete the staging bucket today", key="1", files=(PLAN,))
    (run,) = await runs_of(stage)
    assert (run.run_id, run.status, run.attempt) == (asked, "completed", 0)
    assert await stage.world.deps.stores.claims.claimable_runs() == ()
    assert stage.woken == [asked]
    ask = await stage.open_ask()
    assert (ask.text, ask.options[0]) == ("I was away. Still wanted?", "Yes, go ahead")

    wanted = (await stage.click(ask.ask_id, "Yes, go ahead")).run_id
    assert wanted not in (None, asked)
    (unread,) = await stage.world.deps.stores.conversations.unread_inputs(run.thread_id)
    assert unread.files == (PLAN,)
    await stage.play(wanted)
    said = [str(one["content"]) for one in stage.world.model.requests[0].messages[1:]]
    assert ["delete the staging bucket" in said[0], "I was away" in said[1]] == [True, True]
    assert "Yes, go ahead" in said[2]


THERE = replace(HERE, workspace_id="T2")


async def test_a_question_of_another_workspace_takes_no_answer(stage: ReceiverStage) -> None:
    stage.world.model.turns = [calls(("ask", '{"text": "Which?", "options": ["a", "b"]}'))]
    await stage.run()
    ask = await stage.open_ask()
    assert (await stage.click(ask.ask_id, "a", BOB, THERE)).notice == "This question is no longer open."
    assert await stage.open_ask() == ask


async def test_a_cross_a_deletion_and_words_reach_their_own_workspace_alone(stage: ReceiverStage) -> None:
    run_id = (await stage.receiver.receive(message(key="m1"))).run_id or ""
    cross = StopRequested(address=THERE, dedupe_key="x", message_ref="m1", person=BOB)
    gone = MessageDeleted(address=THERE, dedupe_key="d", message_ref="m1", person=BOB, sent_at=datetime.now(UTC))
    for inbound in (cross, gone):
        assert (await stage.receiver.receive(inbound)).is_ignored
    for name in ("stop", "forget", "status", "new"):
        assert "Working" not in await stage.told(name, address=THERE)
    run = await stage.world.read_run(run_id)
    assert not run.stop_requested
    assert await stage.world.deps.stores.conversations.find(HERE) is not None


async def ask(stage: ReceiverStage, options: str = '["Python", "new", "R"]') -> None:
    """Alice's run asks a question."""
    stage.world.model.turns = [calls(("ask", f'{{"text": "In which language?", "options": {options}}}')), text("ok")]
    await stage.run()
    await stage.open_ask()


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


async def test_words_of_a_command_from_before_the_question_begin_nothing_when_they_come_hours_late(
    stage: ReceiverStage,
) -> None:
    await ask(stage)
    late_words = replace(typed("new", "", "New"), is_missed=True)
    written = replace(message("New", key="typed"), sent_at=datetime.now(UTC) - LONG_AGO)
    assert (await stage.receiver.receive(replace(late_words, message=written))).run_id is None
    assert (await stage.open_ask()).text == "In which language?"


async def test_without_a_question_or_as_a_slash_command_they_are_the_command(stage: ReceiverStage) -> None:
    outcome = await stage.receiver.receive(typed("use", "python", "use python"))
    assert outcome.notice.startswith("There is no agent")
    await ask(stage)
    status = replace(typed("status", "", "status"), dedupe_key="c3")
    assert "In which language?" in (await stage.receiver.receive(status)).notice
    assert (await stage.told("use", "python")).startswith("There is no agent")


DIRECT = replace(HERE, channel_id="D1")
IN_PRIVATE = ActorContext(is_direct=True)
CODE = re.compile(r"`([A-Z2-9]{4}-[A-Z2-9]{4})`")
ADMIN_HERE = AccessPolicy(channels=("C1",), users=("U1",), admins=("U1",))


def direct(words: str = "hello", *, key: str = "d1", author: Person = BOB) -> UserAction:
    return replace(message(words, key=key, author=author), address=DIRECT, actor=IN_PRIVATE)


async def test_a_stranger_gets_a_code_and_is_let_in_by_it(stage: ReceiverStage) -> None:
    receive = stage.with_policy(ADMIN_HERE).receiver.receive
    notice = (await receive(direct(key="d1"))).notice
    code = require(CODE.search(notice))[1]
    assert (await receive(direct(key="d2"))).notice == ""
    answer = await stage.told("pair", code.lower())
    assert answer == "bob (U2) may write to me in direct messages now."
    assert (await receive(direct("now", key="d3"))).run_id is not None
    assert (await receive(message("here", key="k1", author=BOB))).run_id is None


Words = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def say(stage: ReceiverStage) -> Words:
    """A person gives the command `schedules` with these words. Alice is an admin."""
    served = replace(stage.receiver.commands.schedules, describe_hook=lambda hook: f"address of {hook.schedule_id}")
    stage.with_policy(ADMINS).with_commands(schedules=served)
    return partial(stage.command, "schedules")


def store(stage: ReceiverStage) -> SqlSchedules:
    return SqlSchedules(stage.world.database)


async def state_of(stage: ReceiverStage, schedule_id: str) -> ScheduleState | None:
    found = await store(stage).find(schedule_id)
    return found and found.state


async def test_an_admin_makes_a_hook_that_everybody_can_pause(stage: ReceiverStage, say: Words) -> None:
    assert (await say("hook incidents Find out why.", person=BOB)).notice != "address of incidents"
    made = await say("hook Incidents key=alert.id Find out why.")
    assert (made.notice, made.is_private) == ("address of incidents", True)
    assert made.commands == build_commands("incidents")
    hook = require(await store(stage).find("incidents"))
    assert (hook.task, hook.owner, hook.address.thread_key) == ("Find out why.", ALICE, "")
    assert (await say("hook incidents Something else.")).notice == told.NAME_TAKEN
    assert (await say("hook incidents")).notice == "address of incidents"
    for words in ("run", "delete", "resume"):
        assert (await say(f"{words} incidents", person=BOB)).notice == told.HOOK_IS_FOR_ADMINS
    assert "incidents" in (await say("list", person=BOB)).notice
    assert "admin deletes it" in (await say("edit incidents", person=BOB)).notice
    await say("pause incidents", person=BOB)
    assert await state_of(stage, "incidents") == "paused"
    assert (await say("resume incidents")).commands == build_commands("incidents")
    assert "runs now" in (await say("run incidents")).notice
    assert "beginning already" in (await say("run incidents")).notice
    await say("delete incidents")
    assert await state_of(stage, "incidents") is None
    assert (await say("pause incidents")).notice == told.NO_SUCH.format("incidents")


async def test_a_paused_reminder_whose_time_has_passed_is_done_by_what_the_notice_names(
    stage: ReceiverStage, say: Words
) -> None:
    schedule_id = await save_schedule(stage.world.database, "k7m2xqab")
    missed = require(await store(stage).find(schedule_id))
    at_nine = replace(require_type(missed.timing, Timing), next_local=datetime.fromisoformat("2026-01-05T09:00"))
    missed = replace(missed, state="paused", timing=at_nine)
    await store(stage).save(missed, DEFAULT_LIMITS, by=ALICE, change="changed")
    remedy = f"Its time has passed: `schedules run {schedule_id}` does it now, or tell me a new one."
    assert (await say(f"resume {schedule_id}")).notice == remedy == missed.describe_remedy(datetime.now(UTC))
    assert (await say(f"run {schedule_id}")).notice == "It runs now."
    assert (await say("list")).notice == told.NONE, "it was its last time"


async def test_an_app_and_a_stranger_change_nothing(stage: ReceiverStage, say: Words) -> None:
    schedule_id = await save_schedule(stage.world.database, "k7m2xqab")
    deletion = command("schedules", "other", argument=f"delete {schedule_id}")
    app = replace(
        deletion, person=Person(person_id="app:A1", name="Bot"), actor=ActorContext(app_ids=frozenset({"A1"}))
    )
    await stage.receiver.receive(app)
    elsewhere = replace(HERE, channel_id="C2")
    there = await stage.receiver.receive(replace(deletion, address=elsewhere, person=BOB, dedupe_key="there"))
    assert there.notice == told.NO_SUCH.format(schedule_id)
    assert await state_of(stage, schedule_id) == "active"


async def test_operators_make_list_try_and_remove_hooks(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, public_url="https://bot.example.com")
    assert await hooks.list_hooks(settings) == hooks.NONE
    made = await hooks.add_hook(settings, "Incidents", "slack/T1/C1", "U1", "Find out why.")
    assert "https://bot.example.com/hooks/incidents" in made
    (secret,) = re.findall(r"Secret: (\S+)", made)
    async with opened_database(settings.storage_url) as database:
        hook = require(await SqlSchedules(database).find("incidents"))
    assert (hook.timing.rule, secret in repr(hook)) == (f"ON:HOOK {secret}", False)
    assert not (tmp_path / "link.secret").exists()  # deleting it revokes links and nothing else
    with pytest.raises(ConfigurationError, match="of that name already"):
        await hooks.add_hook(settings, "incidents", "slack/T1/C1", "U1", "Find out why.")
    assert "incidents Find out why." in (await hooks.list_hooks(settings)).replace("`", "")
    assert "begins its task" in await hooks.try_hook(settings, "incidents")
    with pytest.raises(ConfigurationError, match="beginning already"):
        await hooks.try_hook(settings, "incidents")
    assert await hooks.remove_hook(settings, "INCIDENTS") == "Removed: INCIDENTS."
    with pytest.raises(ConfigurationError, match="There is no hook"):
        await hooks.try_hook(settings, "incidents")
    for name, channel in (("x", "slack/T1/C1"), ("incidents", "slack/C1"), ("incidents", "teams/T1/C1")):
        with pytest.raises(ConfigurationError):
            await hooks.add_hook(settings, name, channel, "U1", "Find out why.")
