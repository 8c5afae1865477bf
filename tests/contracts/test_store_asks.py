"""How questions are answered, and how a run waits for people and goes on, on each database."""

import asyncio
import json
from dataclasses import replace

import pytest

from core.domain.approval import APPROVE_ALWAYS, APPROVE_ONCE, DENY, Approval, CallToApprove, asked_tools, denial_reason
from core.domain.events import ToolFinished
from core.domain.schedules import FIRING_KEY
from core.domain.threads import (
    APP_PREFIX,
    Accept,
    Decision,
    IncomingFile,
    Lease,
    Person,
    Reply,
    StopRun,
    ThreadSnapshot,
)
from core.stores import DeliveryDraft, DeliveryLease, JournalEntry, RunResult
from storage.sql.stores.erasure import DENIED, REMOVED
from tests.contracts.stores import ADDRESS, ALICE, BOB, COMPLETED, Stores, asking, deciding, event, message, told
from tests.support.narrow import require


async def _shown(stores: Stores, run_id: str) -> DeliveryLease:
    """The run's status and question are posted."""
    rendering = require(await stores.deliveries.claim(run_id, "w1"))
    for one in await stores.deliveries.plan_deliveries(rendering, [DeliveryDraft(slot="status", body={})]):
        await stores.deliveries.record(rendering, replace(one, state="delivered", message_ref=one.slot))
    return rendering


async def test_a_click_answers_the_ask_and_starts_a_new_run(stores: Stores) -> None:
    lease, ask_id = await stores.asked()
    click = replace(message("b", key="k1", kind="answer"), person=BOB)
    receipt = await stores.inbox.accept_action(click, deciding(Accept(ask_id=ask_id)))
    assert receipt.is_new_run
    assert receipt.run_id != lease.run_id
    ask = require(await stores.asks.find_ask(ask_id))
    assert receipt.answered_ask == ask
    assert await stores.asks.asks_of_run(lease.run_id) == (ask,)
    assert (ask.state, ask.answer, ask.answered_by) == ("answered", "b", BOB)
    assert not ask.is_written_in_thread
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert snapshot.open_ask is None
    assert snapshot.thread.state == "running"
    fresh = require(await stores.claims.claim(receipt.run_id or "", "w1"))
    (said,) = await stores.journal.read_inputs(fresh)
    assert (said.kind, said.text) == ("answer", "b")


async def test_plain_text_answers_the_open_ask(stores: Stores) -> None:
    _, ask_id = await stores.asked()
    receipt = await stores.say("the second one")
    assert receipt.answered_ask is not None
    ask = require(await stores.asks.find_ask(ask_id))
    assert (ask.state, ask.answer, ask.answered_by) == ("answered", "the second one", ALICE)
    assert ask.is_written_in_thread


async def test_a_late_request_is_asked_about_and_its_files_go_with_the_answer(stores: Stores) -> None:
    files = (IncomingFile(file_ref="F1", name="plan.pdf"),)
    late = await stores.say("pay the bill", decide=deciding(Accept(is_late=True)), files=files)
    assert not late.is_new_run
    assert await stores.claims.claimable_runs() == ()
    ask = require(await stores.asks.ask_of_run(late.run_id or ""))
    assert (ask.text, ask.options) == ("I was away. Still wanted?", ("Yes, go ahead", "No"))
    assert require(await stores.conversations.find(ADDRESS)).thread.state == "waiting"
    answered = await stores.say("Yes, go ahead", decide=deciding(Accept(ask_id=ask.ask_id)))
    lease = require(await stores.claims.claim(answered.run_id or "", "w1"))
    (answer,) = await stores.journal.read_inputs(lease)
    assert answer.files == files
    assert await stores.finish(lease, asking("Which bill?"))
    newest = require(await stores.asks.ask_of_run(lease.run_id))
    again = await stores.say("this one", decide=deciding(Accept(ask_id=newest.ask_id)))
    lease = require(await stores.claims.claim(again.run_id or "", "w1"))
    (answer,) = await stores.journal.read_inputs(lease)
    assert answer.files == ()


async def test_typed_answers_go_with_the_person_who_typed_them(stores: Stores) -> None:
    _, ask_id = await stores.asked()
    await stores.inbox.accept_action(message("my secret", key="k1"), deciding(Accept(ask_id=ask_id)))
    await stores.conversations.erase_person(ADDRESS, BOB.person_id)
    ask = require(await stores.asks.find_ask(ask_id))
    assert ask.answer == "my secret"
    await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    ask = require(await stores.asks.find_ask(ask_id))
    assert (ask.state, ask.answered_by) == ("answered", None)
    assert ask.answer == "[This message was removed at the request of the person who wrote it.]"


async def test_an_approval_stays_one_when_its_person_is_forgotten(stores: Stores) -> None:
    _, ask_id = await stores.asked()
    chosen = message(APPROVE_ONCE, key="k1", kind="answer")
    await stores.inbox.accept_action(chosen, deciding(Accept(ask_id=ask_id)))
    await stores.conversations.erase_person(ADDRESS, ALICE.person_id)
    ask = require(await stores.asks.find_ask(ask_id))
    assert (ask.answer, ask.answered_by) == (APPROVE_ONCE, None)


async def test_of_many_answers_at_once_the_first_wins(stores: Stores) -> None:
    _, ask_id = await stores.asked()
    clicks = [
        stores.inbox.accept_action(message(f"choice {n}", key=f"k{n}", kind="answer"), deciding(Accept(ask_id=ask_id)))
        for n in range(8)
    ]
    receipts = await asyncio.gather(*clicks)
    (winner,) = [one for one in receipts if one.answered_ask]
    assert winner.is_new_run
    assert {one.run_id for one in receipts} == {winner.run_id}
    ask = await stores.asks.find_ask(ask_id)
    assert ask == winner.answered_ask
    assert len(await stores.journal.read_inputs(require(await stores.claims.claim(winner.run_id or "", "w1")))) == 8


async def test_an_answer_to_another_ask_is_an_ordinary_message(stores: Stores) -> None:
    _, ask_id = await stores.asked()
    late = message("x", key="k1", kind="answer")
    receipt = await stores.inbox.accept_action(late, deciding(Accept(ask_id="older")))
    assert receipt.answered_ask is None
    assert receipt.is_new_run
    assert require(await stores.asks.find_ask(ask_id)).state == "open"


@pytest.mark.parametrize(
    ("author", "key", "ending", "state"),
    [
        (ALICE, "m9", COMPLETED, "withdrawn"),
        (ALICE, f"{FIRING_KEY}f1", COMPLETED, "open"),
        (Person(person_id=f"{APP_PREFIX}A1", name="alerts"), "m9", COMPLETED, "open"),
        (ALICE, f"{FIRING_KEY}f1", asking("Which now?"), "withdrawn"),
    ],
)
async def test_a_question_outlasts_runs_that_no_user_has_begun(
    stores: Stores, author: Person, key: str, ending: RunResult, state: str
) -> None:
    _, ask_id = await stores.asked()
    receipt = await stores.say("look", key=key, decide=deciding(Accept(is_steering=True)), person=author)
    lease = require(await stores.claims.claim(receipt.run_id or "", "w1"))
    assert await stores.finish(lease, ending)
    assert require(await stores.asks.find_ask(ask_id)).state == state
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert snapshot.thread.state == ("idle" if snapshot.open_ask is None else "waiting")
    asked_people: list[Person | None] = []

    def decide(snapshot: ThreadSnapshot | None) -> Decision:
        ask = require(snapshot).open_ask
        asked_people.append(ask.requester if ask else None)
        return Accept()

    answered = (await stores.say("the second one", decide=decide)).answered_ask
    assert (answered and answered.ask_id) == (snapshot.open_ask and snapshot.open_ask.ask_id)
    assert asked_people == [ALICE if answered else None]


async def test_an_answer_makes_the_posted_question_stale_and_opens_its_run(stores: Stores) -> None:
    lease, _ = await stores.asked()
    rendering = await _shown(stores, lease.run_id)
    assert await stores.deliveries.close(rendering)
    assert await stores.deliveries.open_runs() == ()
    cards: list[str] = []

    def decide(snapshot: ThreadSnapshot | None) -> Decision:
        cards.append(require(require(snapshot).open_ask).message_ref)
        return Accept()

    receipt = await stores.say("b", decide=decide)
    assert cards == ["ask"]
    assert await stores.deliveries.open_runs() == (lease.run_id, receipt.run_id)
    again = require(await stores.deliveries.claim(lease.run_id, "w1"))
    stale = await stores.deliveries.plan_deliveries(again, [])
    assert [(one.state, one.message_ref) for one in stale] == [("stale", "status"), ("stale", "ask")]
    for one in stale:
        assert not await stores.deliveries.close(again)
        await stores.deliveries.record(again, replace(one, state="delivered"))
    assert await stores.deliveries.close(again)


async def test_an_ask_that_was_passed_over_is_withdrawn_when_the_next_run_ends(stores: Stores) -> None:
    first, ask_id = await stores.asked()
    rendering = await _shown(stores, first.run_id)
    assert await stores.deliveries.close(rendering)
    again = await stores.stops.retry_run(first.run_id, "click", continues=False)
    assert await stores.finish(require(await stores.claims.claim(again or "", "w1")), asking("And now?"))
    old = require(await stores.asks.find_ask(ask_id))
    assert (old.state, old.answer, old.answered_by) == ("withdrawn", None, None)
    snapshot = require(await stores.conversations.find(ADDRESS))
    assert require(snapshot.open_ask).text == "And now?"
    assert first.run_id in await stores.deliveries.open_runs()


async def test_an_ask_is_withdrawn_with_its_conversation(stores: Stores) -> None:
    lease, ask_id = await stores.asked()
    rendering = await _shown(stores, lease.run_id)
    assert await stores.deliveries.close(rendering)
    assert await stores.conversations.unbind(ADDRESS)
    assert require(await stores.asks.find_ask(ask_id)).state == "withdrawn"
    assert lease.run_id in await stores.deliveries.open_runs()


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
    assert (require(snapshot.active_run).status, snapshot.thread.state) == ("waiting", "waiting")


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
