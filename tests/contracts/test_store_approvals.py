"""How a run waits for people and goes on, on each database."""

import json
from dataclasses import replace

import pytest

from core.domain.approval import APPROVE_ALWAYS, DENY, Approval, CallToApprove, asked_tools, denial_reason
from core.domain.events import ToolFinished
from core.domain.threads import Accept, Lease, Reply, StopRun
from core.stores import DeliveryDraft, JournalEntry
from storage.sql.stores.erasure import DENIED, REMOVED
from tests.contracts.stores import ADDRESS, BOB, COMPLETED, Stores, deciding, event, message, told
from tests.support.narrow import require

DEPLOY = CallToApprove(index=0, tool="deploy", headline="Deploy the site", arguments={"name": "spring"})
APPROVAL = Approval(turn_id="turn", calls=(DEPLOY,))


async def _waiting(stores: Stores) -> tuple[Lease, str]:
    lease = await stores.started()
    await stores.journal.suspend_run(lease, JournalEntry(), APPROVAL)
    ask = require(await stores.journal.find_approval(lease.run_id))
    return lease, ask.ask_id


async def test_a_waiting_run_is_nobodys_until_it_is_answered(stores: Stores) -> None:
    lease, _ = await _waiting(stores)
    assert await stores.claims.claimable_runs() == ()
    assert await stores.claims.claim(lease.run_id, "w2") is None
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert snapshot.active_run is not None
    assert (snapshot.active_run.status, snapshot.thread.state) == ("waiting", "waiting")


async def test_an_approval_withdraws_an_open_question(stores: Stores) -> None:
    asking, _ = await stores.asked("Which colour?")
    said = await stores.say("Deploy", decide=deciding(Accept(is_steering=True)))
    lease = require(await stores.claims.claim(said.run_id or "", "w1"))
    await stores.journal.suspend_run(lease, JournalEntry(), APPROVAL)
    assert require(await stores.asks.ask_of_run(asking.run_id)).state == "withdrawn"


async def test_a_click_queues_the_same_run_and_is_no_input(stores: Stores) -> None:
    lease, ask_id = await _waiting(stores)
    click = replace(message(APPROVE_ALWAYS, key="k1", kind="answer"), person=BOB)
    receipt = await stores.inbox.accept_action(click, deciding(Accept(ask_id=ask_id)))
    assert (receipt.run_id, receipt.is_new_run) == (lease.run_id, True)
    again = require(await stores.claims.claim(lease.run_id, "w2"))
    assert again.attempt == 2
    assert [one.text for one in await stores.journal.read_inputs(again)] == ["hello"]
    ask = require(await stores.journal.find_approval(lease.run_id))
    assert (ask.state, ask.answered_by, asked_tools(ask)) == ("answered", BOB, ("deploy",))
    assert await _granted(stores, lease.run_id) == {DEPLOY.grant}


async def _granted(stores: Stores, run_id: str) -> frozenset[str]:
    loaded = require(await stores.conversations.load_run(run_id))
    return loaded.granted


async def test_words_queue_the_run_and_stay_as_input(stores: Stores) -> None:
    lease, _ = await _waiting(stores)
    receipt = await stores.say("rather not")
    assert receipt.run_id == lease.run_id
    again = require(await stores.claims.claim(lease.run_id, "w2"))
    assert [one.text for one in await stores.journal.read_inputs(again)] == ["hello", "rather not"]
    assert await _granted(stores, lease.run_id) == frozenset()


async def test_a_stop_withdraws_the_question_and_queues_the_run(stores: Stores) -> None:
    lease, _ = await _waiting(stores)
    await stores.inbox.accept_action(message("", key="k2"), deciding(StopRun()))
    assert require(await stores.journal.find_approval(lease.run_id)).state == "withdrawn"
    run = require(await stores.conversations.run(lease.run_id))
    assert (run.status, run.stop_requested) == ("queued", True)


async def test_the_question_is_delivered_while_the_run_is_on(stores: Stores) -> None:
    lease, ask_id = await _waiting(stores)
    rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
    status, asked = await stores.deliveries.plan_deliveries(rendering, [DeliveryDraft(slot="status", body={})])
    assert (asked.slot, asked.body) == ("ask", {"text": APPROVAL.card, "ask_id": ask_id})
    for one in (status, asked):
        await stores.deliveries.record(rendering, replace(one, state="delivered", message_ref=one.slot))
    assert not await stores.deliveries.close(rendering)
    await stores.say("no")
    shown = await stores.deliveries.plan_deliveries(rendering, [])
    assert [one.state for one in shown] == ["delivered", "stale"]  # the run goes on with its status


async def test_a_card_has_its_commands_and_what_does_not_fit_as_a_file(stores: Stores) -> None:
    long = replace(DEPLOY, arguments={"name": "x" * 2000}, commands={"Show": "status"})
    lease, approval = await stores.started(), Approval(turn_id="turn", calls=(long,))
    await stores.journal.suspend_run(lease, JournalEntry(), approval)
    rendering = require(await stores.deliveries.claim(lease.run_id, "w1"))
    (asked,) = await stores.deliveries.plan_deliveries(rendering, [])
    file = {"file_name": approval.file_name, "file_text": approval.file_text}
    assert {**asked.body, "commands": {"Show": "status"}, **file} == asked.body


async def test_a_stop_that_came_before_the_question_withdraws_it_at_once(stores: Stores) -> None:
    lease = await stores.started()
    assert await stores.stops.request_stop(lease.run_id)
    await stores.journal.suspend_run(lease, JournalEntry(), APPROVAL)
    assert require(await stores.journal.find_approval(lease.run_id)).state == "withdrawn"
    assert await stores.claims.claimable_runs() == (lease.run_id,)
    assert await stores.claims.claim(lease.run_id, "w2") is not None


async def test_an_old_question_expires_once_and_an_answered_one_never(stores: Stores) -> None:
    lease, ask_id = await _waiting(stores)
    assert await stores.asks.expire_approvals(older_than_hours=1) == ()
    assert await stores.asks.expire_approvals(older_than_hours=0) == (lease.run_id,)
    assert await stores.asks.expire_approvals(older_than_hours=0) == ()
    ask = require(await stores.asks.find_ask(ask_id))
    assert (ask.state, ask.answer, ask.answered_by) == ("expired", None, None)
    again = require(await stores.claims.claim(lease.run_id, "w2"))
    await stores.journal.suspend_run(again, JournalEntry(), APPROVAL)
    await stores.say("approve once")
    assert await stores.asks.expire_approvals(older_than_hours=0) == ()
    assert require(await stores.journal.find_approval(lease.run_id)).state == "answered"


async def test_a_question_that_is_no_approval_waits_for_ever(stores: Stores) -> None:
    lease = await stores.started()
    reply = Reply(kind="ask", text="Which?")
    ending = replace(COMPLETED, finish_reason="agent_terminated", reply=reply)
    assert not await stores.journal.finish(lease, JournalEntry(), ending)
    taken = JournalEntry(taken_input_ids=tuple(one.input_id for one in await stores.journal.read_inputs(lease)))
    assert await stores.journal.finish(lease, taken, ending)
    assert await stores.asks.expire_approvals(older_than_hours=0) == ()
    assert require(await stores.conversations.find(ADDRESS)).open_ask is not None


@pytest.mark.parametrize("words", ['no, the "wrong" list of Jürgen', DENY])
async def test_whoever_denied_and_is_forgotten_is_named_in_no_result(stores: Stores, words: str) -> None:
    _, ask_id = await _waiting(stores)
    click = replace(message(words, key="k1", kind="answer"), person=BOB)
    receipt = await stores.inbox.accept_action(click, deciding(Accept(ask_id=ask_id)))
    lease = require(await stores.claims.claim(str(receipt.run_id), "w2"))
    ask = require(await stores.journal.find_approval(lease.run_id))
    reason = denial_reason(ask)
    results = [json.dumps({"error": reason}, ensure_ascii=False), f"cut: {reason[:22]}"]
    finished = ToolFinished(index=0, call_id="c", name="deploy", outcome="error", message=reason)
    entry = JournalEntry(
        messages=tuple(replace(told(lease, one), type="tool") for one in results), events=(event(lease, 1, finished),)
    )
    await stores.journal.write(lease, entry)
    await stores.conversations.erase_person(ADDRESS, BOB.person_id)
    kept, cut = [one.content["content"] for one in await stores.conversations.llm_messages(lease.thread_id)]
    assert json.loads(str(kept))["error"] == DENIED
    assert cut == REMOVED
    (told_event,) = await stores.conversations.events(lease.run_id)
    assert isinstance(told_event.event, ToolFinished)
    assert told_event.event.message == DENIED
