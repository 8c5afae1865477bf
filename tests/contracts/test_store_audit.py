"""Who did what, written with the act itself, on each database."""

from dataclasses import replace
from datetime import UTC, datetime

from core.domain.approval import APPROVE_ALWAYS, DENY, ONE_BY_ONE, Approval, CallToApprove
from core.domain.audit import AuditEntry
from core.domain.threads import Accept, Ignore, StopRun
from core.stores import JournalEntry
from tests.contracts.stores import ADDRESS, ALICE, BOB, FAILED, Stores, deciding, message
from tests.support.narrow import require

PIN = CallToApprove(index=0, tool="pin", headline="Pin a note.", arguments={})
POST = CallToApprove(index=1, tool="post", headline="Post it.", arguments={})


async def acts(stores: Stores) -> list[tuple[str, str, str]]:
    """Action, actor and subject of every entry, the oldest first."""
    found = await stores.audit.newest_entries(limit=50)
    return [(one.action, one.actor.name, one.subject) for one in reversed(found)]


async def test_a_request_is_recorded_with_its_run_and_without_its_words(stores: Stores) -> None:
    receipt = await stores.say("the secret word")
    (entry,) = await stores.audit.newest_entries(limit=5)
    assert (entry.action, entry.actor, entry.address) == ("run_requested", ALICE, ADDRESS)
    assert (entry.run_id, entry.thread_id) == (receipt.run_id, receipt.thread_id)
    assert "secret" not in repr(entry)


async def test_a_repeated_an_ignored_and_a_steering_message_are_not_recorded(stores: Stores) -> None:
    await stores.say("hello", key="k1")
    await stores.say("hello", key="k1")
    await stores.say("and", key="k2")
    await stores.say("no", key="k3", decide=deciding(Ignore(reason="refused")))
    assert await acts(stores) == [("run_requested", "alice", "")]


async def test_an_answer_to_a_question_and_a_stop_are_recorded(stores: Stores) -> None:
    await stores.asked()
    await stores.inbox.accept_action(replace(message("b", key="k1", kind="answer"), person=BOB), deciding(Accept()))
    await stores.say("", key="k2", decide=deciding(StopRun()), person=BOB)
    assert [act[:2] for act in await acts(stores)] == [
        ("run_requested", "alice"),
        ("question_answered", "bob"),
        ("stop_requested", "bob"),
    ]


async def test_approvals_are_recorded_with_the_tools(stores: Stores) -> None:
    lease = await stores.started()
    for key, calls, said in (
        ("k1", (PIN,), APPROVE_ALWAYS),
        ("k2", (PIN, POST), ONE_BY_ONE),
        ("k3", (PIN, POST), DENY),
    ):
        await stores.journal.suspend_run(lease, JournalEntry(), Approval(turn_id="t1", calls=calls))
        await stores.say(said, key=key, person=BOB)
        again = require(await stores.claims.claim(lease.run_id, "w1"))
        lease = again
    assert (await acts(stores))[1:] == [
        ("approval_given", "bob", "pin (always in this conversation)"),
        ("approval_denied", "bob", "pin, post"),
    ]


async def test_a_stop_by_button_is_recorded_once_it_counts(stores: Stores) -> None:
    lease = await stores.started()
    assert await stores.stops.request_stop(lease.run_id, by=BOB)
    await stores.finish(lease, FAILED)
    assert not await stores.stops.request_stop(lease.run_id, by=BOB)
    assert (await acts(stores))[1:] == [("stop_requested", "bob", "")]
    assert await stores.conversations.find_stopper_name(ADDRESS, lease.run_id) == "bob"
    assert await stores.conversations.find_stopper_name(ADDRESS, "another") == ""


async def test_what_nobody_asked_for_is_not_recorded(stores: Stores) -> None:
    lease = await stores.started()
    await stores.stops.request_stop(lease.run_id)
    await stores.conversations.delete_thread(lease.thread_id)
    assert len(await acts(stores)) == 1


async def test_a_retry_is_recorded_once(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease, FAILED)
    await stores.stops.retry_run(lease.run_id, "click", continues=True, by=BOB)
    await stores.stops.retry_run(lease.run_id, "click", continues=True, by=BOB)
    assert (await acts(stores))[1:] == [("run_requested", "bob", "continue")]


async def test_entries_outlive_the_conversation_that_was_forgotten(stores: Stores) -> None:
    lease = await stores.started()
    await stores.finish(lease)
    await stores.agents.choose_agent(ADDRESS, "research", by=BOB)
    await stores.conversations.unbind(ADDRESS, by=BOB)
    await stores.conversations.unbind(ADDRESS, by=BOB)
    await stores.conversations.delete_thread(lease.thread_id, by=BOB)
    await stores.conversations.delete_thread(lease.thread_id, by=BOB)
    assert await acts(stores) == [
        ("run_requested", "alice", ""),
        ("agent_chosen", "bob", "research"),
        ("conversation_renewed", "bob", ""),
        ("conversation_forgotten", "bob", ""),
    ]


async def test_an_act_is_recorded_with_the_claim_of_its_key_alone(stores: Stores) -> None:
    act = AuditEntry(action="plan_changed", actor=BOB, address=ADDRESS, happened_at=datetime.now(UTC))
    assert await stores.inbox.claim_key("k1", act=act)
    assert not await stores.inbox.claim_key("k1", act=act)
    assert await acts(stores) == [("plan_changed", "bob", "")]


async def test_a_workspace_reads_its_own_entries(stores: Stores) -> None:
    here = AuditEntry(action="workspace_joined", actor=BOB, address=ADDRESS, happened_at=datetime.now(UTC))
    elsewhere = replace(here, actor=ALICE, address=replace(ADDRESS, workspace_id="T2"))
    for entry in (here, elsewhere):
        await stores.audit.record(entry)
    assert await stores.audit.newest_entries(limit=5, platform="slack", workspace_id="T1") == (here,)
    assert await stores.audit.newest_entries(limit=5, platform="discord", workspace_id="T1") == ()
    assert await stores.audit.newest_entries(limit=1) == (elsewhere,)
