"""The words that are answered at once."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from bots.bootstrap.background_jobs import delete_old_conversations
from bots.inbound.access import AccessPolicy
from bots.inbound.commands.forget import NOT_YOURS, delete_conversation
from bots.inbound.commands.table import COMMANDS
from core.domain.approval import DENY
from core.domain.audit import AuditEntry
from core.domain.errors import StorageUnavailable
from core.domain.plans import Plan, Step
from core.domain.threads import Address
from core.failpoints import FailpointHit, arm
from core.flow.plan_changes import add_plan
from storage.sql.tables import threads
from tests.contracts.stores import TEST
from tests.fakes.streamed_model import calls, text
from tests.integration.bots.receiver_stage import BOB, HERE, ReceiverStage, command, message, runs_of
from tests.integration.bots.receiver_stage import stage as stage
from tests.integration.core.conftest import world as world
from tests.integration.core.test_consent import EVIL, PAGE, READING, with_tools
from tests.support.narrow import require


async def one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content


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


async def test_status_files_and_usage_answer_at_once(stage: ReceiverStage) -> None:
    stage.world.model.turns = [text("one")]
    outcome = await stage.receiver.receive(message())
    assert (await stage.receiver.receive(command("status", "k1"))).notice == ("Waiting in line for alice.")
    await stage.play(outcome.run_id)
    assert "completed" in (await stage.receiver.receive(command("status", "k2"))).notice
    assert "10 tokens in, 5 out, $0.0010" in (await stage.receiver.receive(command("usage", "k3"))).notice
    assert (await stage.receiver.receive(command("files", "k4"))).notice == ("There are no files yet.")
    assert "could not be posted" in (await stage.receiver.receive(command("export", "k5"))).notice
    versions = command("agents", "k6", argument="versions coding")
    assert (await stage.receiver.receive(versions)).notice.endswith("so it has no versions.")


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


async def carried_out_twice(
    stage: ReceiverStage, monkeypatch: pytest.MonkeyPatch, name: str, argument: str, request: str
) -> str:
    """Sends a command, the key of which is not stored, then a request, and the command again. Returns the run of the
    request."""
    claim, keys = stage.world.inbox.claim_key, ["c9"]

    async def claim_later(key: str, *, act: AuditEntry | None = None) -> bool:
        if key in keys:
            keys.remove(key)
            raise StorageUnavailable("the database is away")
        return await claim(key, act=act)

    monkeypatch.setattr(stage.world.inbox, "claim_key", claim_later)
    sent_at = datetime.now(UTC)
    called = replace(command(name, "c9", argument=argument), sent_at=sent_at)
    with pytest.raises(StorageUnavailable):
        await stage.receiver.receive(called)
    later = replace(message(request, key="slack:2"), sent_at=sent_at + timedelta(seconds=1))
    receipt = await stage.receiver.receive(later)
    assert (await stage.receiver.receive(called)).notice
    assert keys == []
    return receipt.run_id or ""


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


async def answer(stage: ReceiverStage, key: str) -> str:
    return (await stage.receiver.receive(replace(command("why", key), address=stage.world.address))).notice


async def test_it_says_what_was_read_and_who_answered(stage: ReceiverStage) -> None:
    with_tools(stage.world)
    send = calls(("send", json.dumps({"to": EVIL})))
    stage.world.model.turns = [READING, send, text("I did not send it.")]
    await stage.world.run(f"Read {PAGE}.")
    assert "no answer yet" in await answer(stage, "k1")
    await stage.world.run(DENY)
    shown = await answer(stage, "k2")
    assert "- the page `example.com/howto`, read just now" in shown
    assert "files.evil.example" in shown
    assert f"alice answered `{DENY}`" in shown


async def worked(stage: ReceiverStage) -> str:
    stage.world.model.turns = [text("one")]
    await stage.play((await stage.receiver.receive(message(key="m1"))).run_id)
    snapshot = await stage.world.deps.stores.conversations.find(HERE)
    assert snapshot is not None
    return snapshot.thread.thread_id


async def test_a_conversation_whose_requester_is_forgotten_is_not_anybodys(stage: ReceiverStage) -> None:
    await worked(stage)
    assert "Forgotten" in (await stage.receiver.receive(command("forget", "me", argument="me yes"))).notice
    assert (await stage.receiver.receive(replace(command("forget", argument="yes"), person=BOB))).notice == NOT_YOURS


async def test_old_conversations_are_deleted_and_others_stay(stage: ReceiverStage) -> None:
    old = await worked(stage)
    conversations = stage.world.deps.stores.conversations
    there = replace(HERE, thread_key="2.0")
    await stage.receiver.receive(replace(message(key="m2"), address=there))
    mcp = await conversations.create(Address(platform="api", workspace_id="", channel_id="mcp", thread_key="session"))

    async def forget(thread_id: str) -> None:
        await delete_conversation(thread_id, stage.receiver.commands.erasure)

    assert await conversations.unbind_inactive_threads(datetime.now(UTC) - timedelta(days=1), limit=9) == ()
    assert await conversations.unbind_inactive_threads(datetime.now(UTC) + timedelta(days=1), limit=9) == (old,)
    past = datetime.now(UTC) - timedelta(days=31)
    aged = update(threads).values(last_activity_at=past)
    await stage.world.database.write(TEST, lambda c: c.execute(aged).close())
    await delete_old_conversations(conversations, forget, 30)
    assert await conversations.snapshot(old) is None
    # a conversation with a run that has not ended is no old one
    assert await conversations.find(there) is not None
    # nor is a session of `threadhand mcp`, which may be in use
    assert await conversations.snapshot(mcp.thread_id) is not None
    # which its own host deletes, if it comes back
    month_ago = datetime.now(UTC) - timedelta(days=29)
    assert mcp.thread_id not in await conversations.unbind_inactive_threads(month_ago, limit=9)
    today = datetime.now(UTC)
    assert mcp.thread_id in await conversations.unbind_inactive_threads(today, limit=9)


class ManyOld:
    """Old conversations of which the first ones cannot be deleted."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.left = [*broken, "good"]

    async def unbind_inactive_threads(self, before: datetime, *, limit: int) -> tuple[str, ...]:
        return tuple(self.left[:limit])

    async def forget(self, thread_id: str) -> None:
        if thread_id in self.broken:
            raise PermissionError(f"the folder of {thread_id} is in use")
        self.left.remove(thread_id)


@pytest.mark.parametrize("count", [1, 60])
async def test_a_conversation_that_cannot_be_deleted_holds_up_no_other(count: int) -> None:
    store = ManyOld(*(f"bad {number}" for number in range(count)))
    await delete_old_conversations(store, store.forget, 30)
    assert store.left == [*store.broken]


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
