"""Messages that were written long before the bot received them: they are asked about, and start no run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bots.inbound.actions import LATE_SECONDS
from core.domain.actions import AskAnswered
from core.domain.threads import Ask, IncomingFile
from tests.fakes.streamed_model import text
from tests.integration.bots.receiver_stage import ALICE, HERE, ReceiverStage, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world

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


async def test_a_live_message_is_never_late_whatever_the_clocks_say(stage: ReceiverStage) -> None:
    await late(stage, "delete the staging bucket", key="1", is_missed=False)
    (run,) = await runs_of(stage)
    assert run.status == "queued"


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


async def test_a_message_of_a_minute_ago_starts_a_run_at_once(stage: ReceiverStage) -> None:
    sent = replace(message(), sent_at=datetime.now(UTC) - timedelta(seconds=60))
    run_id = (await stage.receiver.receive(sent)).run_id
    assert await stage.world.deps.stores.claims.claimable_runs() == (run_id,)
