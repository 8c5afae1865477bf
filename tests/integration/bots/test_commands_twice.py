"""A command whose key was not stored comes again, and is not carried out twice. What came later is not touched."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from core.domain.audit import AuditEntry
from core.domain.errors import StorageUnavailable
from core.domain.plans import Plan, Step
from core.flow.steps import add_plan
from tests.fakes.streamed_model import text
from tests.integration.bots.receiver_stage import HERE, ReceiverStage, command, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world


async def carried_out_twice(
    stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch, name: str, argument: str, request: str
) -> str:
    """Sends a command, the key of which is not stored, then a request, and the command again. Returns the run of the
    request."""
    claim, keys = stage.world.inbox.claim, ["c9"]

    async def claim_later(key: str, *, act: AuditEntry | None = None) -> bool:
        if key in keys:
            keys.remove(key)
            raise StorageUnavailable("the database is away")
        return await claim(key, act=act)

    monkeypatch.setattr(stage.world.inbox, "claim", claim_later)
    sent_at = datetime.now(UTC)
    called = replace(command(name, "c9", argument=argument), sent_at=sent_at)
    with pytest.raises(StorageUnavailable):
        await stage.receiver.receive(called)
    later = replace(message(request, key="slack:2"), sent_at=sent_at + timedelta(seconds=1))
    receipt = await stage.receiver.receive(later)
    assert (await stage.receiver.receive(called)).notice
    assert keys == []
    return receipt.run_id or ""


async def test_a_step_is_added_once(stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.world.model.turns = [text("ok")]
    await stage.play((await stage.receiver.receive(message("hello"))).run_id)
    (run,) = await runs_of(stage)
    plans = stage.world.deps.stores.plans
    plan = Plan(plan_id="p", title="t", steps=(Step(text="one"),), run_id=run.run_id, seen_message_id="")
    await plans.change(run.thread_id, lambda known: add_plan(known, plan))

    await carried_out_twice(stage, monkeypatch, "plan", "add Pay Bob 100 EUR", "and now?")

    (after,) = await plans.read(run.thread_id)
    assert [step.text for step in after.steps] == ["one", "Pay Bob 100 EUR"]


@pytest.mark.parametrize(("name", "argument"), [("forget", "yes"), ("new", "")])
async def test_a_conversation_that_is_newer_than_the_command_stays(
    stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch, name: str, argument: str
) -> None:
    stage.world.model.turns = [text("ok"), text("new")]
    await stage.play((await stage.receiver.receive(message("hello"))).run_id)

    run_id = await carried_out_twice(stage, monkeypatch, name, argument, "a new request")

    (run,) = await runs_of(stage)
    assert (run.run_id, run.status) == (run_id, "queued")
    assert len(await stage.world.deps.stores.conversations.thread_ids(HERE)) == 1 + (name == "new")
